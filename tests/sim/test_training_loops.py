"""Training loops as users write them take the steps that PyTorch takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import NonFiniteLoss, ShapeError
from magmath.optim import Adam, GradientDescent, Momentum, Optimizer

PAIRS: dict[str, tuple[Callable[[], Optimizer], Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": (lambda: GradientDescent(0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "momentum": (
        lambda: Momentum(0.05, momentum=0.8), lambda p: torch.optim.SGD(p, 0.05, momentum=0.8)
    ),
    "nesterov": (
        lambda: Momentum(0.05, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    ),
    "adam": (lambda: Adam(0.05), lambda p: torch.optim.Adam(p, 0.05)),
}  # fmt: skip


def test_variables_that_are_updated_apart_count_their_own_steps() -> None:
    """As PyTorch's parameters do, of which one has no gradient in some steps."""
    with current("inline"):
        v, w = mm.variable("v", np.ones(3)), mm.variable("w", np.ones(3))
        adam = Adam(0.1)
        for step in range(6):
            adam.minimize(mm.sum(v * v) + mm.sum(w**3), [v, w] if step % 3 else [v])
        p, q = (torch.nn.Parameter(torch.ones(3, dtype=torch.float64)) for _ in range(2))
        theirs = torch.optim.Adam([p, q], 0.1)
        for step in range(6):
            theirs.zero_grad()
            ((p * p).sum() + ((q**3).sum() if step % 3 else 0)).backward()
            theirs.step()
        np.testing.assert_allclose(v.numpy(), p.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(w.numpy(), q.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_are_updated_in_float32(name: str, dtype: str) -> None:
    """Many small steps arrive where those in float32 arrive."""
    make, _ = PAIRS[name]
    with current("inline"):
        ends = []
        for element in (dtype, "float32"):
            v = mm.variable("v", mm.asarray([1.0, -2.0, 0.5], dtype=element))
            optimizer = make()
            optimizer.learning_rate = 1e-4
            for _ in range(300):
                x = mm.astype(v, "float32")
                optimizer.minimize(mm.sum(mm.square(x - 3.0)), [v])
            ends.append(mm.astype(v, "float32").numpy())
        assert np.abs(ends[1] - np.float32([1.0, -2.0, 0.5])).min() > 0.02
        np.testing.assert_allclose(ends[0], ends[1], rtol=1e-2)


def test_a_half_variable_that_was_assigned_goes_on_from_there() -> None:
    with current("inline"):
        v = mm.variable("v", mm.asarray([1.0], dtype="bfloat16"))
        descent = GradientDescent(0.5)
        descent.minimize(mm.sum(mm.astype(v, "float32")), [v])
        assert v.tolist() == [0.5]
        v.assign(mm.asarray([8.0], dtype="bfloat16"))
        descent.minimize(mm.sum(mm.astype(v, "float32")), [v])
        assert v.tolist() == [7.5]


def test_values_that_are_not_finite_raise_errors_unless_the_check_is_disabled() -> None:
    with current("inline"):
        v = mm.variable("v", [1.0])
        descent = GradientDescent(1e30)
        with pytest.raises(
            NonFiniteLoss, match=r"minimize: .* at step \d+ of 10.*check_finite=False"
        ):
            descent.minimize(mm.sum(v**4), [v], steps=10)
        v.assign([1.0])
        value = descent.minimize(mm.sum(v**4), [v], steps=10, check_finite=False)
        assert not np.isfinite(value)


def test_a_gradient_of_another_shape_is_refused() -> None:
    with current("inline"):
        v = mm.variable("v", [1.0, 2.0])
        with pytest.raises(
            ShapeError, match=r"update: variable v has shape \(2,\), its gradient \(\)"
        ):
            GradientDescent(0.1).update({v: mm.asarray(1.0)})


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("eager", 2)])
def test_accuracy_counts_the_first_maximum(kind: str, workers: int) -> None:
    draw = np.random.default_rng(1)
    scores = draw.integers(0, 3, (200, 4)).astype(np.float32)  # with many ties
    labels = draw.integers(0, 4, 200)
    share = float(np.mean(np.argmax(scores, axis=1) == labels))
    with current(kind, workers):
        from magmath.nn.metrics import accuracy

        assert float(accuracy(mm.asarray(scores), mm.asarray(labels))) == pytest.approx(share)
        whole = mm.asarray(np.eye(4, dtype=np.float32)[labels])
        assert float(accuracy(mm.asarray(scores), whole)) == pytest.approx(share)
        net = mm.nn.NeuralNetwork([mm.nn.Dense(4)], loss=mm.nn.cross_entropy)
        net.build((1, 4))
        for v in net.parameters.values():
            v.assign(np.zeros(v.shape, np.float32))
        figures = net.evaluate(scores, labels)
        assert figures["accuracy"] == pytest.approx(np.mean(labels == 0))
        history = net.fit(scores, labels, epochs=1)
        assert history.records[0].accuracy is not None
