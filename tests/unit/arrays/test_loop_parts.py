"""Python loops over arrays that are planned: their pending expressions are computed in parts, whose
programs are found again; values and gradients are those of NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.engine.lifetimes import loop_parts

SHAPE = (40, 30)
STEPS: dict[str, Any] = {
    "rolled": lambda np, u, v, t: (u + 0.1 * np.roll(v, 1, 0) - 0.01 * u * v, v * 0.99 + 0.01 * u),
    "one array": lambda np, u, v, t: (np.sin(u) * 1.01 + 0.01 * np.roll(u, 1, 1), v),
    "swapped": lambda np, u, v, t: (v * 0.9 + 0.1, np.tanh(u) + t * v),
    "sliced": lambda np, u, v, t: (u * 1.0 + 0.1 * (u[:1] - u[-1:]), v + u.mean()),
    "products": lambda np, u, v, t: (0.1 * u @ (v.T @ v) / 50 + u, v * 0.999),
}
STEPS_OF_POOLS = {  # every step on one worker, and on several workers of one kind
    ("planned", 1): [*STEPS],
    ("shared", 2): ["rolled", "one array", "products"],
    ("messages", 3): ["swapped", "sliced"],
}
COMPARED = [(kind, step) for kind, steps in STEPS_OF_POOLS.items() for step in steps]


def looped(np: Any, step: str, u: Any, v: Any, count: int) -> Any:
    for i in range(count):
        u, v = STEPS[step](np, u, v, i / count)
    return u + v


def built() -> int:
    return session.engine()._programs.built


@settings(max_examples=3)
@given(count=st.integers(1, 90), seed=st.integers(0, 99))
@pytest.mark.parametrize(("kind", "step"), COMPARED, ids=str)
def test_values_and_gradients(kind: tuple[str, int], step: str, count: int, seed: int) -> None:
    """With respect to an array that has a name, also through one that has none any more."""
    values = np.random.default_rng(seed).normal(size=(2, *SHAPE))
    u, v = (torch.tensor(x, requires_grad=True) for x in values)
    expected = looped(torch, step, u * 1.0, v * 1.0, count)
    (expected * expected).sum().backward()
    with current(*kind):
        x, y = map(mm.asarray, values)
        actual = looped(mm, step, x * 1.0, y * 1.0, count)
        gradients = mm.grad((actual * actual).sum(), [x, y])
        np.testing.assert_allclose(actual.numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-9)
        for one, other in zip(gradients, (u.grad, v.grad), strict=True):
            known = np.zeros(SHAPE) if other is None else other.numpy()
            np.testing.assert_allclose(one.numpy(), known, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(("kind", "step"), COMPARED, ids=str)
def test_the_parts_of_a_loop_have_the_same_program(kind: tuple[str, int], step: str) -> None:
    """So a loop of any length builds as many."""
    with current(*kind):
        x, y = map(mm.asarray, np.random.default_rng(0).normal(size=(2, *SHAPE)))
        counts = []
        for steps in (110, 190, 350):
            before = built()
            looped(mm, step, x, y, steps).numpy()
            counts.append(built() - before)
        assert counts[0] <= 6
        assert max(counts[1:]) <= 3  # the first and the last parts may be new
        before = built()
        looped(mm, step, x, y, 350).numpy()
        assert built() == before


@pytest.mark.parametrize("is_complex", [False, True])
def test_temporaries_that_gradients_need_are_kept_or_the_expression_is(
    is_complex: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays that a step makes and drops are operands of later gradients."""
    draws = np.random.default_rng(0).normal(size=(60, *SHAPE))
    factors = draws * (0.1 + 0.2j) if is_complex else draws * 0.1

    def noisy(np: Any, asarray: Any, u: Any) -> Any:
        for factor in factors:
            u = np.tanh(u) * 0.9 + asarray(factor) * u
        return np.abs(u).sum()

    z = torch.tensor(draws[0], requires_grad=True)
    noisy(torch, torch.tensor, z * torch.tensor(factors[1])).backward()
    assert z.grad is not None
    for limit in (loop_parts.MAX_HELD_BYTES, 1000):
        with monkeypatch.context() as patch, current("planned"):
            patch.setattr(loop_parts, "MAX_HELD_BYTES", limit)
            x = mm.asarray(draws[0])
            loss = noisy(mm, mm.asarray, x * mm.asarray(factors[1]))
            assert (loss.node.depth < 120) == (limit > 1000)
            result = mm.grad(loss, x).numpy()
            np.testing.assert_allclose(result, z.grad.numpy(), rtol=1e-8, atol=1e-12)


def test_what_is_differentiated_as_a_whole_is_not_divided() -> None:
    """Expressions with variables, functions of `mm.grad`, and large floating point values."""

    def chain(x: Any) -> Any:
        for _ in range(100):
            x = mm.sin(x) * 1.01
        return x

    large = np.ones((loop_parts.MAX_BYTES // 8 // 1000 + 1, 1000))
    with current("planned"):
        depths = []
        mm.value_and_grad(lambda x: (depths.append(chain(x).node.depth), x.sum())[1])(
            mm.asarray(np.ones(SHAPE))
        )
        depths.append(chain(mm.variable("v", np.ones(SHAPE))).node.depth)
        depths.append(chain(mm.asarray(large)).node.depth)
        assert min(depths) >= 200
        integers = mm.asarray(large.astype(int))
        for _ in range(200):
            integers = integers + 1
        assert integers.node.depth < 200
        assert chain(mm.asarray(np.ones(SHAPE))).node.depth < 200
