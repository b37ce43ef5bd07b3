"""Gradients by variable are a dictionary, which is no sequence of gradients."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variables.gradient_map import GradientMap


def made() -> tuple[list[mm.Variable], Callable[[], mm.Array]]:
    v, w = mm.variable("v", [1.0, 2.0]), mm.variable("w", [3.0, 4.0])
    return [v, w], lambda: mm.sum(v * v * w)


SOURCES: dict[str, Callable[[Any, Any], Any]] = {
    "value_and_grad": lambda f, variables: mm.value_and_grad(f, variables)[1],
    "grad": lambda f, variables: mm.grad(f, variables),
    "with auxiliary": lambda f, variables: mm.grad(lambda: (f(), 1), variables, has_aux=True)[0],
    "loss scale": lambda f, variables: mm.optim.LossScale().value_and_grad(f, variables)[1],
    "compiled": lambda f, variables: mm.compile(lambda: mm.value_and_grad(f, variables))()[1],
    "argument and result": lambda f, variables: mm.compile(lambda g: g)(mm.grad(f, variables)),
    "branch": lambda f, variables: mm.cond(
        mm.asarray(True), lambda g: g, lambda g: g, mm.grad(f, variables)
    ),
}


@pytest.mark.parametrize("source", SOURCES)
def test_gradients_are_not_iterated_over(source: str) -> None:
    """`zip(parameters, gradients)` is right in PyTorch and JAX, and would pair parameters here."""
    variables, f = made()
    gradients = SOURCES[source](f, variables)
    iterations: list[Callable[[Any], object]] = [
        list, tuple, set, iter, lambda g: dict(zip(variables, g, strict=True)), lambda g: [*g],
        lambda g: [x for x, _ in g], lambda g: next(iter(g)),
    ]  # fmt: skip
    for iterated in iterations:
        with pytest.raises(TypeError, match=r"gradients\.items\(\).*gradients\.values\(\)"):
            iterated(gradients)
    expected = [[6.0, 16.0], [1.0, 4.0]]
    assert [g.tolist() for g in gradients.values()] == expected
    assert [v for v, _ in gradients.items()] == variables == [*gradients.keys()]
    assert [gradients[v].tolist() for v in variables] == expected


def test_gradients_are_a_dictionary() -> None:
    (v, w), f = made()
    gradients = mm.grad(f, [v, w])
    assert len(gradients) == 2
    assert v in gradients
    assert w in gradients
    for same in (dict(gradients), {**gradients}, gradients | {}, copy.copy(gradients)):
        assert same[v] is gradients[v]
        assert len(same) == 2
    assert not mm.grad(f, [])
    leaves, tree = flatten([gradients, 1])
    again, one = unflatten(tree, leaves)
    assert (type(again), one) == (GradientMap, 1)
    assert again[w] is gradients[w]
    doubled = {variable: 2.0 * g for variable, g in gradients.items()}
    descents = [mm.optim.GradientDescent(0.5), mm.optim.GradientDescent(0.25)]
    before = v.numpy()
    descents[0].update(gradients)
    descents[1].update(doubled)
    np.testing.assert_allclose(v.numpy(), before - [6.0, 16.0])
    assert type(pickle.loads(pickle.dumps(gradients))) is GradientMap


def test_a_module_may_keep_gradients() -> None:
    class Net(mm.nn.Module):
        def __init__(self) -> None:
            self.dense = mm.nn.Dense(2)

        def __call__(self, x: mm.Array) -> mm.Array:
            return self.dense(x)

    net, x = Net().build((1, 3)), mm.ones((4, 3))
    for _ in range(2):
        net.last = mm.grad(lambda: mm.sum(net(x) ** 2), net.trainable())
        assert [path for path, _ in net.named_parameters()] == ["dense.weight", "dense.bias"]
