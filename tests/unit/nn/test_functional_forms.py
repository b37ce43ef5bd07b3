"""Each layer has its functional form; those of sequences give PyTorch's numbers."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import OptionError, ShapeError
from magmath.nn import functional as f

POOLS = [("inline", 1), ("threads", 3)]
OTHER_NAMES = {
    "Activation": "ACTIVATIONS",
    "Dense": "linear",
    "Hardsigmoid": "hard_sigmoid",
    "Hardswish": "hard_swish",
    "MultiheadAttention": "multi_head_attention",
    "Upsample": "interpolate",
}
COMPOSED = {"Add", "Concatenate", "Identity", "Lambda", "Parallel", "Residual", "Sequential",
            "TransformerDecoderLayer", "TransformerEncoderLayer"}  # fmt: skip
"""Layers that compute by other layers, or by an operator."""


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    former = mm.get_default_dtype()
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype(former)


def _function_name(layer: str) -> str:
    """Return the name of the function of a layer: with underscores between words."""
    if layer in OTHER_NAMES:
        return OTHER_NAMES[layer]
    if re.search(r"Pad\dd$", layer):
        return "pad"
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", "_", layer).lower()


def test_each_layer_has_a_functional_form() -> None:
    names = {name: _function_name(name) for name in set(nn.layers.__all__) - COMPOSED}
    joined = {name.replace("_", ""): name for name in f.__all__}
    missing = {
        layer: name
        for layer, name in names.items()
        if name not in f.__all__ and name.replace("_", "").lower() not in joined
    }
    assert missing == {}


# recurrent networks -------------------------------------------------------------------------------

X = np.random.default_rng(0).normal(size=(4, 6, 3))
UNITS = 5


def _weights(module: torch.nn.Module, suffixes: list[str], bias: bool) -> list[list[mm.Array]]:
    """Return the weights of a module of PyTorch, as the functions take them."""
    parts = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if bias else [])]
    tensors = [[getattr(module, part + suffix).detach() for part in parts] for suffix in suffixes]
    return [[mm.asarray((x.T if x.ndim == 2 else x).numpy()) for x in own] for own in tensors]


def _tuple(state: Any) -> tuple[Any, ...]:
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True), (3, False)])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_functions(
    name: str, layers: int, bidirectional: bool, bias: bool, kind: str, workers: int
) -> None:
    torch.manual_seed(1)
    theirs = getattr(torch.nn, name)(
        3, UNITS, layers, bias=bias, batch_first=True, bidirectional=bidirectional
    ).double()
    ends = ["", "_reverse"] if bidirectional else [""]
    suffixes = [f"_l{i}{end}" for i in range(layers) for end in ends]
    expected, last = theirs(torch.from_numpy(X))
    again, _ = theirs(torch.from_numpy(X), last)
    function = getattr(f, name.lower())
    with current(kind, workers):
        weights = _weights(theirs, suffixes, bias)
        x = mm.asarray(X)
        outputs, state = function(x, weights, bidirectional=bidirectional)
        continued, _ = function(x, weights, state, bidirectional=bidirectional)
        np.testing.assert_allclose(outputs, expected.detach(), atol=1e-12)
        np.testing.assert_allclose(continued, again.detach(), atol=1e-12)
        for actual, wanted in zip(state, _tuple(last), strict=True):
            np.testing.assert_allclose(actual, wanted.detach(), atol=1e-12)
        (slope,) = mm.grad((outputs * outputs).sum(), [weights[-1][0]])
        (expected * expected).sum().backward()
        grad = getattr(theirs, f"weight_ih{suffixes[-1]}").grad
        np.testing.assert_allclose(slope, grad.T, atol=1e-10)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_functions_of_one_step(name: str, bias: bool) -> None:
    torch.manual_seed(2)
    theirs = getattr(torch.nn, f"{name}Cell")(3, UNITS, bias=bias).double()
    first, second = (torch.from_numpy(X)[:, t] for t in (0, 1))
    state = theirs(first)
    expected = theirs(second, state)
    with current("inline"):
        (weights,) = _weights(theirs, [""], bias)
        function = getattr(f, f"{name.lower()}_cell")
        ours = function(mm.asarray(X[:, 1]), weights, function(mm.asarray(X[:, 0]), weights))
        assert isinstance(ours, tuple) == (name == "LSTM")
        for actual, wanted in zip(_tuple(ours), _tuple(expected), strict=True):
            np.testing.assert_allclose(actual, wanted.detach(), atol=1e-12)


def test_dropout_between_layers_is_that_of_training() -> None:
    with current("inline"):
        mm.random.seed(3)
        net = nn.GRU(UNITS, layers=2)
        x = mm.asarray(X)
        net.eval()
        expected = net(x)[0].numpy()
        weights = [direction.weights(3) for (direction,) in net.layers]
        np.testing.assert_allclose(f.gru(x, weights, dropout=0.5)[0], expected)
        outputs = f.gru(x, weights, dropout=0.5, training=True)[0].numpy()
        assert not np.allclose(outputs, expected)
        doubled, _ = f.gru(x, weights, dropout=lambda y: 2.0 * y)
        assert not np.allclose(doubled, expected)


def test_weights_and_states_that_do_not_fit() -> None:
    with current("inline"):
        x, w, u = mm.ones((2, 4, 3)), mm.ones((3, 20)), mm.ones((5, 20))
        with pytest.raises(ShapeError, match=r"lstm: needs weights for each of 2 directions"):
            f.lstm(x, [(w, u)], bidirectional=True)
        with pytest.raises(
            ShapeError, match=r"gru: needs weights \(inputs, 3 · units\).*transpose"
        ):
            f.gru(x, [(w, u)])
        with pytest.raises(ShapeError, match=r"lstm: needs weights"):
            f.lstm(x, [(w, u, w)])
        with pytest.raises(ShapeError, match=r"lstm: takes \(N, length, inputs\)"):
            f.lstm(x[0], [(w, u)])
        with pytest.raises(ShapeError, match=r"lstm_cell: takes \(N, inputs\).*mm\.nn\.LSTM"):
            f.lstm_cell(x, (w, u))
        with pytest.raises(ShapeError, match=r"lstm: the state is 2 × \(1, 2, 5\)"):
            f.lstm(x, [(w, u)], mm.ones((1, 2, 5)))


# attention ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention(masked: bool, bias: bool, kind: str, workers: int) -> None:
    torch.manual_seed(4)
    random = np.random.default_rng(4)
    theirs = torch.nn.MultiheadAttention(8, 2, bias=bias, batch_first=True).double()
    query, key, value = (torch.from_numpy(random.normal(size=(3, n, 8))) for n in (4, 6, 6))
    padding = np.ones((3, 6), dtype=bool)
    padding[:, 4:] = not masked
    expected, _ = theirs(
        query, key, value, key_padding_mask=torch.from_numpy(~padding), need_weights=False
    )
    weights = [*theirs.in_proj_weight.detach().chunk(3), theirs.out_proj.weight.detach()]
    biases = None
    if bias:
        biases = [*theirs.in_proj_bias.detach().chunk(3), theirs.out_proj.bias.detach()]
    with current(kind, workers):
        actual = f.multi_head_attention(
            *[mm.asarray(x.numpy()) for x in (query, key, value)],
            2,
            [mm.asarray(w.T.numpy()) for w in weights],
            None if biases is None else [mm.asarray(b.numpy()) for b in biases],
            key_mask=padding if masked else None,
        )
        np.testing.assert_allclose(actual, expected.detach(), atol=1e-12)


def test_layer_and_function_of_attention_agree() -> None:
    with current("inline"):
        layer = nn.MultiheadAttention(8, 4)
        x = mm.asarray(np.random.default_rng(5).normal(size=(2, 5, 8)))
        parts = (layer.query, layer.key, layer.value, layer.output)
        expected = layer(x, causal=True)
        weights, biases = [p.weight for p in parts], [p.bias for p in parts]
        actual = f.multi_head_attention(x, x, x, 4, weights, biases, causal=True)
        np.testing.assert_allclose(actual, expected, atol=1e-13)
        dropped = f.multi_head_attention(x, x, x, 4, weights, biases, dropout=0.5, training=True)
        assert not np.allclose(dropped, expected)
        with pytest.raises(ShapeError, match="heads must divide the features, was given 3 for 8"):
            f.multi_head_attention(x, x, x, 3, weights)
        narrow = [*weights[:2], mm.ones((8, 6)), mm.ones((6, 8))]
        with pytest.raises(ShapeError, match="heads must divide the features, was given 4 for 6"):
            f.multi_head_attention(x, x, x, 4, narrow)
        for heads in (0, -2, 2.0):
            with pytest.raises(OptionError, match="multi_head_attention: heads must be an integer"):
                f.multi_head_attention(x, x, x, heads, weights)
        with pytest.raises(ShapeError, match="needs four weights"):
            f.multi_head_attention(x, x, x, 4, weights[:3])
        with pytest.raises(ShapeError, match=r"multi_head_attention: takes keys \(N, length"):
            f.multi_head_attention(x, x[0], x, 4, weights)


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("name", ["conv", "conv_transpose", "max_pool", "avg_pool",
                                  "adaptive_avg_pool", "adaptive_max_pool"])  # fmt: skip
def test_numbered_functions_have_their_own_help(name: str, space: int) -> None:
    general, numbered = getattr(f, name), getattr(f, f"{name}{space}d")
    assert numbered.__name__ == numbered.__qualname__ == f"{name}{space}d"
    assert (numbered.__doc__ or "").startswith((general.__doc__ or "").splitlines()[0])
    assert signature(numbered) == signature(general)
    assert not {"name", "space"} & signature(general).parameters.keys()
    assert pickle.loads(pickle.dumps(numbered)) is numbered
    x = mm.ones((2, 3, *[6] * space))
    second = mm.ones((3, 3, *[2] * space)) if "conv" in name else 2
    np.testing.assert_array_equal(numbered(x, second).numpy(), general(x, second).numpy())
    with pytest.raises(ShapeError, match=f"^{name}{space}d: "):
        numbered(mm.ones(()), second)
    with pytest.raises(TypeError, match=r"it takes x, (?!.*\bspace\b)|unexpected keyword"):
        numbered(x, second, wrong=1)


SIZES = st.lists(st.none() | st.integers(1, 5), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(SIZES, st.data(), st.sampled_from(["avg", "max"]))
def test_adaptive_pooling(size: list[int | None], data: st.DataObject, kind: str) -> None:
    image = data.draw(st.tuples(*[st.integers(1, 7)] * len(size)))
    x = np.random.default_rng(0).normal(size=(2, 3, *image))
    theirs = torch.tensor(x, requires_grad=True)
    counts = [n if m is None else m for n, m in zip(image, size, strict=True)]
    expected = getattr(torch.nn, f"Adaptive{kind.title()}Pool{len(size)}d")(counts)(theirs)
    (expected * expected).sum().backward()
    with current("inline"):
        ours = mm.asarray(x)
        layer = getattr(nn, f"Adaptive{kind.title()}Pool{len(size)}d")(size)
        pooled = layer(ours)
        np.testing.assert_allclose(pooled, expected.detach(), atol=1e-12)
        slope = mm.grad((pooled * pooled).sum(), ours)
        np.testing.assert_allclose(slope, theirs.grad, atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_mask_that_is_added_has_the_type_of_the_scores(dtype: str) -> None:
    with current("inline"):
        mask = np.triu(np.full((4, 4), -np.inf), 1)
        x = mm.asarray(X[:, :4], dtype=dtype)
        expected = f.attention_weights(x, x, causal=True)
        for given in (mask, mask.astype("float32"), mm.asarray(mask), mask.tolist()):
            actual = f.attention_weights(x, x, given)
            assert actual.dtype == x.dtype
            np.testing.assert_array_equal(actual.numpy(), expected.numpy())
        layer = nn.MultiheadAttention(4, 2)
        y = mm.ones((2, 4, 4), dtype="float32")
        layer.build(y.shape)
        layer.astype(mm.float32)
        with mm.nn.precision("mixed-bfloat16"):
            assert layer(y, mask=mask).dtype == layer(y, causal=True).dtype
