"""Recurrent layers with sequences of different lengths equal PyTorch's packed sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import DTypeError, RangeError, ShapeError

FORMS = [
    ("inline", 1, False, "float64"),
    ("inline", 1, True, "float32"),
    ("shared", 2, False, "float32"),
    ("shared", 2, True, "float64"),
]
KINDS = {"RNN": torch.nn.RNN, "GRU": torch.nn.GRU, "LSTM": torch.nn.LSTM}
TOLERANCES = {"float64": 1e-11, "float32": 2e-5}
X = np.random.default_rng(0).normal(size=(6, 7, 3))
LENGTHS = np.array([3, 7, 1, 5, 5, 2])


def pair(
    name: str, layers: int, bidirectional: bool, dtype: str
) -> tuple[nn.Module, torch.nn.Module, dict[str, torch.nn.Parameter]]:
    """Return a layer, PyTorch's layer with its weights, and their parameters by the paths of
    ours."""
    ours = getattr(nn, name)(4, layers=layers, bidirectional=bidirectional)
    ours.build(X.shape).astype(dtype)
    theirs = KINDS[name](3, 4, layers, bidirectional=bidirectional, batch_first=True)
    theirs = theirs.to(getattr(torch, dtype))
    counterparts = {}
    for path, variable in ours.named_parameters():
        _, layer, direction, part = path.split(".")
        part, kind = part.split("_")
        end = f"{'ih' if part == 'input' else 'hh'}_l{layer}" + "_reverse" * int(direction)
        counterparts[path] = getattr(theirs, f"{kind}_{end}")
        counterparts[path].data = torch.from_numpy(variable.numpy().T.copy())
    return ours, theirs, counterparts


def packed_results(theirs: Any, x: torch.Tensor, lengths: Any, state: Any = None) -> Any:
    """Return PyTorch's outputs and a tuple of its last states."""
    packed = pack_padded_sequence(x, torch.as_tensor(lengths), True, enforce_sorted=False)
    results, last = theirs(packed, state)
    outputs, _ = pad_packed_sequence(results, True, total_length=x.shape[1])
    return outputs, last if isinstance(last, tuple) else (last,)


def total(outputs: Any, states: Any) -> Any:
    return (outputs**2).sum() + sum(((k + 1) * s**3).sum() for k, s in enumerate(states))


@pytest.mark.parametrize(("kind", "workers", "compiled", "dtype"), FORMS)
@pytest.mark.parametrize(
    ("layers", "bidirectional"), [(1, False), (1, True), (2, False), (2, True)]
)
@pytest.mark.parametrize("name", KINDS)
def test_packed_sequences(
    name: str, layers: int, bidirectional: bool, kind: str, workers: int, compiled: bool, dtype: str
) -> None:
    """Outputs, last states and gradients of the parameters and inputs, from states of ours."""
    tolerance = TOLERANCES[dtype]
    with current(kind, workers):
        ours, theirs, counterparts = pair(name, layers, bidirectional, dtype)
        draw = np.random.default_rng(1)
        shape = (layers * (1 + bidirectional), 6, 4)
        first = [draw.normal(size=shape).astype(dtype) for _ in range(1 + (name == "LSTM"))]
        parameters = ours.trainable()

        def run(x: Any, lengths: Any, state: Any) -> Any:
            outputs, last = ours(x, state, lengths=lengths)
            return outputs, last, mm.grad(total(outputs, last), [*parameters, x])

        run = mm.compile(run) if compiled else run
        outputs, last, slopes = run(
            mm.asarray(X.astype(dtype)), mm.asarray(LENGTHS), tuple(map(mm.asarray, first))
        )
        x = torch.from_numpy(X.astype(dtype)).requires_grad_()
        states = tuple(map(torch.from_numpy, first))
        expected, ends = packed_results(theirs, x, LENGTHS, states if name == "LSTM" else states[0])
        total(expected, ends).backward()
        for actual, wanted in zip([outputs, *last], [expected, *ends], strict=True):
            assert str(actual.dtype) == dtype
            np.testing.assert_allclose(actual, wanted.detach(), atol=tolerance)
        wanted_slopes = [*[p.grad.numpy().T for p in counterparts.values()], x.grad]
        for slope, wanted in zip(slopes, wanted_slopes, strict=True):
            np.testing.assert_allclose(slope, wanted, atol=10 * tolerance, rtol=10 * tolerance)


@settings(max_examples=15)
@given(st.data())
def test_each_sequence_has_the_result_that_it_has_alone(data: Any) -> None:
    """Whatever the padding is: NaN too, in values and gradients."""
    name = data.draw(st.sampled_from(sorted(KINDS)))
    bidirectional = data.draw(st.booleans())
    length = data.draw(st.integers(1, 5))
    lengths = data.draw(st.lists(st.integers(1, length), min_size=1, max_size=4))
    x = np.random.default_rng(len(lengths)).normal(size=(len(lengths), length, 3))
    for row, end in zip(x, lengths, strict=True):
        row[end:] = np.nan
    with current("inline", 1):
        layer = getattr(nn, name)(4, layers=2, bidirectional=bidirectional)
        layer.build((1, 1, 3)).astype("float64")
        outputs, last = layer(x, lengths=lengths)
        slopes = mm.grad(total(outputs, last), layer.trainable())
        alone = [layer(x[i : i + 1, :end]) for i, end in enumerate(lengths)]
        for i, end in enumerate(lengths):
            values, states = alone[i]
            np.testing.assert_allclose(outputs[i, :end], values[0], atol=1e-12)
            assert not np.any(outputs[i, end:].numpy())
            for actual, wanted in zip(last, states, strict=True):
                np.testing.assert_allclose(actual[:, i], wanted[:, 0], atol=1e-12)
        sums = mm.grad(sum(total(*results) for results in alone), layer.trainable())
        for actual, wanted in zip(slopes, sums, strict=True):
            np.testing.assert_allclose(actual, wanted, atol=1e-10)


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_functional_forms_take_lengths(name: str) -> None:
    with current("inline", 1):
        layer = getattr(nn, name.upper())(4, bidirectional=True)
        expected, last = layer(X.astype("float32"), lengths=LENGTHS)
        weights = [direction.weights(3) for direction in layer.layers[0]]
        x = mm.asarray(X.astype("float32"))
        function = getattr(nn.functional, name)
        outputs, states = function(x, weights, lengths=LENGTHS.tolist(), bidirectional=True)
        for actual, wanted in zip([outputs, *states], [expected, *last], strict=True):
            np.testing.assert_array_equal(actual, wanted)


WRONG = [
    ([7] * 5, ShapeError, r"GRU: needs a length for each of 6 sequences, .*\(5,\)"),
    (np.ones((6, 7), int), ShapeError, r"GRU: needs a length for each of 6 .*mm\.sum\(mask"),
    (np.full(6, 3.0), DTypeError, r"GRU: lengths are integers, was given float64; .*mm\.astype"),
    (np.ones(6, bool), DTypeError, r"GRU: lengths are integers, was given bool"),
    ([7, 7, 7, 7, 7, 8], RangeError, r"GRU: lengths must be from 1 to 7, .* was given 7 to 8"),
    (np.arange(6), RangeError, r"GRU: lengths must be from 1 to 7, .* 0 to 5; leave out empty"),
]


@pytest.mark.parametrize(("lengths", "error", "message"), WRONG)
def test_wrong_lengths(lengths: Any, error: type[Exception], message: str) -> None:
    with current("inline", 1), pytest.raises(error, match=message):
        nn.GRU(4)(mm.asarray(X), lengths=lengths)
