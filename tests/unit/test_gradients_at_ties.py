"""Gradients where functions have a kink: at equal operands, at limits and at zero they are those of
PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.graph import Graph

Function = Callable[..., Any]
FEW = [-1.0, -0.5, -0.0, 0.0, 0.5, 1.0]
"""Numbers of which random operands consist, so that many are equal."""


def vectors(count: int) -> st.SearchStrategy[list[list[float]]]:
    """Vectors of equal length whose elements are often equal."""
    return st.integers(1, 6).flatmap(
        lambda n: st.lists(
            st.lists(st.sampled_from(FEW), min_size=n, max_size=n), min_size=count, max_size=count
        )
    )


def check(ours: Function, theirs: Function, *operands: Sequence[float]) -> None:
    """Compare first derivatives, and second derivatives of the squares, by all operands: variables,
    and arrays, of which small ones are computed at once."""
    values = [np.array(x, np.float64) for x in operands]
    _compare(ours, theirs, values, [mm.variable("x", value) for value in values])
    _compare(ours, theirs, values, [mm.asarray(value) for value in values])


def _compare(ours: Function, theirs: Function, values: Any, x: list[mm.Array]) -> None:
    t = [torch.tensor(value, requires_grad=True) for value in values]
    weights = np.linspace(1.0, 2.0, num=np.size(ours(*x).numpy())).reshape(ours(*x).shape)
    result, expected = ours(*x), theirs(*t)
    np.testing.assert_array_equal(result.numpy(), expected.detach().numpy())
    first = mm.grad(mm.sum(result * result * weights), x)
    total = (expected * expected * torch.tensor(weights)).sum()
    first_expected = torch.autograd.grad(total, t, create_graph=True)
    for actual, known in zip(first, first_expected, strict=True):
        np.testing.assert_allclose(actual.numpy(), known.detach().numpy(), rtol=1e-13)
    again = mm.grad(sum(mm.sum(g * g * g) for g in first), x)
    slopes = sum((g * g * g).sum() for g in first_expected)
    known_second = torch.autograd.grad(slopes, t)
    for actual, known in zip(again, known_second, strict=True):
        np.testing.assert_allclose(actual.numpy(), known.numpy(), rtol=1e-13)


@pytest.mark.parametrize("kind", ["inline", "planned"])
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extrema(kind: str, name: str) -> None:
    """Of two arrays, and of an array and a number in either order."""
    ours, theirs = getattr(mm, name), getattr(torch, name)

    @settings(max_examples=10, deadline=None)
    @given(operands=vectors(2), number=st.sampled_from(FEW))
    def run(operands: list[list[float]], number: float) -> None:
        scalar = torch.tensor(number, dtype=torch.float64)
        check(ours, theirs, *operands)
        check(lambda x: ours(x, number), lambda x: theirs(x, scalar), operands[0])
        check(lambda x: ours(number, x), lambda x: theirs(scalar, x), operands[0])

    with current(kind):
        run()


@pytest.mark.parametrize("kind", ["inline", "planned"])
def test_clip(kind: str) -> None:
    """With numbers and with arrays as limits, where the lower one is less than the upper one."""

    @settings(max_examples=10, deadline=None)
    @given(operands=vectors(2), limits=st.sampled_from([(-0.5, 0.5), (None, 0.0), (0.0, None)]))
    def run(operands: list[list[float]], limits: tuple[float | None, float | None]) -> None:
        x, low = operands
        check(lambda x: mm.clip(x, *limits), lambda x: torch.clamp(x, *limits), x)
        check(mm.clip, torch.clamp, x, low)
        high = [number + 0.5 for number in low]
        check(mm.clip, torch.clamp, x, low, high)

    with current(kind):
        run()


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_over_axes(name: str, axis: Any) -> None:
    ours, theirs = getattr(mm, name), getattr(torch, f"a{name}")

    @settings(max_examples=10, deadline=None)
    @given(values=vectors(3))
    def run(values: Any) -> None:
        check(lambda x: ours(x, axis=axis), lambda x: theirs(x, dim=axis), values)

    with current("inline"):
        run()


@pytest.mark.parametrize("dtype", [mm.float16, mm.bfloat16])
@pytest.mark.parametrize("count", [300, 100_000])
def test_many_equal_elements_of_half_types(dtype: Any, count: int) -> None:
    """More than the type counts exactly, and more than its largest number."""
    with current("inline"):
        x = mm.zeros(count, dtype=dtype)
        for function in (mm.max, mm.min):
            result = mm.astype(mm.grad(function(x), x), mm.float32).numpy()
            np.testing.assert_allclose(result, np.full(count, 1 / count, np.float32), rtol=1e-2)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: mm.modf(x)[0], torch.frac),
        (mm.abs, torch.abs),
        (mm.fabs, torch.abs),
        (mm.sign, torch.sign),
        (mm.relu, torch.relu),
    ],
)
def test_zero(ours: Function, theirs: Function) -> None:
    with current("inline"):
        check(lambda x: ours(x) + 0.5 * x, lambda x: theirs(x) + 0.5 * x, FEW)


@pytest.mark.parametrize("kind", ["inline", "planned"])
def test_powers_of_zero(kind: str) -> None:
    """Also to exponents below 0, where the slopes are infinite."""
    x, y = np.meshgrid([-0.0, 0.0, 0.5, 1.0, 2.0], [-2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0])
    tensors = [torch.from_numpy(operand.copy()).requires_grad_() for operand in (x, y)]
    expected = torch.autograd.grad((tensors[0] ** tensors[1]).sum(), tensors)
    with current(kind):
        operands = [mm.asarray(x), mm.asarray(y)]
        actual = mm.grad(mm.sum(operands[0] ** operands[1]), operands)
        for ours, theirs in zip(actual, expected, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-14)


@pytest.mark.parametrize("dtype", [mm.float16, mm.float32, mm.float64])
def test_powers_0_of_small_numbers(dtype: Any) -> None:
    """Whose inverse is infinite."""
    small = [0.0, -0.0, 1e-5, 1e-7, 1e-40, 1e-310, 2.0]
    with current("inline"):
        x, y = mm.asarray(small, dtype=dtype), mm.zeros(len(small), dtype=dtype)
        assert mm.grad(mm.sum(x**y), x).tolist() == [0.0] * len(small)


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_near_multiples(name: str) -> None:
    """The slope by the divisor is the exact quotient, which the quotient of floats may exceed."""

    @settings(max_examples=25, deadline=None)
    @given(
        count=st.integers(1, 1000),
        divisor=st.floats(0.0625, 10, width=32),
        signs=st.tuples(*[st.sampled_from([1, -1])] * 2),
    )
    def run(count: int, divisor: float, signs: tuple[int, int]) -> None:
        x, y = np.float32(signs[0] * count * divisor), np.float32(signs[1] * divisor)
        quotient = Fraction(float(x)) / Fraction(float(y))
        known = math.trunc(quotient) if name == "fmod" else math.floor(quotient)
        slope = mm.grad(lambda y: getattr(mm, name)(mm.asarray(x), y))(mm.asarray(y))
        assert float(slope) == -known

    with current("inline"):
        run()


@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders_of_multiples(name: str) -> None:
    with current("inline"):
        x, y = [4.0, -4.0, 0.0, 5.0, -5.5], [2.0, 2.0, 3.0, 3.0, 3.0]
        check(getattr(mm, name), getattr(torch, name), x, y)


@pytest.mark.parametrize("name", ["hypot", "atan2"])
@pytest.mark.parametrize("count", [1, 1000, 20_000])
def test_lengths_and_angles_of_half_types(name: str, count: int) -> None:
    """Of lengths whose squares overflow, for cotangents that are small."""
    with current("inline"):
        x, y = (mm.full(3, v, dtype=mm.float16) for v in (300.0, -400.0))
        found = mm.grad(
            lambda x, y: mm.sum(mm.astype(getattr(mm, name)(x, y), mm.float32)) / count,
            argnums=(0, 1),
        )(x, y)
    known = (0.6, -0.8) if name == "hypot" else (-400 / 500**2, -300 / 500**2)
    for slope, number in zip(found, known, strict=True):
        np.testing.assert_allclose(slope.numpy(), number / count, rtol=2e-3, atol=6e-8)


@pytest.mark.parametrize(
    "name", ["relu", "relu6", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "elu", "celu"]
)
def test_activations(name: str) -> None:
    theirs = getattr(torch.nn.functional, name)
    ours = getattr(mm.nn.functional, {"hardsigmoid": "hard_sigmoid", "hardswish": "hard_swish"}.get(
        name, name))  # fmt: skip
    values = np.array([-4.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 7.0])
    with current("inline"):
        x, t = mm.variable("x", values), torch.tensor(values, requires_grad=True)
        actual = mm.grad(mm.sum(ours(x)), x).numpy()
        (known,) = torch.autograd.grad(theirs(t).sum(), t)
    np.testing.assert_allclose(actual, known.numpy(), rtol=1e-7, atol=1e-12)


def test_nan_and_infinite_cotangents() -> None:
    """A cotangent reaches only the operands that are the result, also if it is infinite."""
    a, b = [-3.0, 3.0, np.nan, np.inf, 1.0], [0.0, np.nan, 1.0, np.inf, 1.0]
    factors = [np.inf, 2.0, 2.0, 2.0, np.inf]
    with current("inline"):
        for ours, theirs in (
            (mm.maximum, torch.maximum), (mm.minimum, torch.minimum), (mm.clip, torch.clamp),
            (mm.fmax, torch.fmax), (mm.fmin, torch.fmin),
        ):  # fmt: skip
            x, y = mm.variable("x", np.array(a)), mm.variable("y", np.array(b))
            t, u = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (a, b))
            actual = mm.grad(mm.sum(ours(x, y) * np.array(factors)), [x, y])
            total = (theirs(t, u) * torch.tensor(factors, dtype=torch.float64)).sum()
            for mine, known in zip(actual, torch.autograd.grad(total, [t, u]), strict=True):
                np.testing.assert_array_equal(mine.numpy(), known.numpy(), err_msg=str(ours))


def test_the_gradient_of_relu_is_one_selection() -> None:
    with current("inline"):
        x = mm.variable("x", np.ones((300, 300)))
        names = [node.name for node in Graph((mm.grad(mm.sum(mm.relu(x)), x).node,)).nodes]
    assert names.count("where_positive") == 1
    assert not {"equal", "greater", "less", "where"} & set(names)


@pytest.mark.parametrize("kind", ["inline", "planned"])
@pytest.mark.parametrize("part", [0.5, 0.4, 0.25, 0.0, 1.0])
@pytest.mark.parametrize("values", [[2.0, 1.0, 2.0, 5.0], [1.0, 1.0, 1.0], [3.0, 1.0, 2.0, 4.0]])
def test_quantiles_of_equal_elements(kind: str, part: float, values: list[float]) -> None:
    with current(kind, 1 if kind == "inline" else 2):
        x = mm.asarray(np.array(values))
        t = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        (known,) = torch.autograd.grad(torch.quantile(t, part), t)
        actual = mm.grad(lambda z: mm.quantile(z, part))(x)
        np.testing.assert_allclose(np.sort(actual.numpy()), np.sort(known.numpy()), atol=1e-15)
        if len(set(values)) > 2:
            np.testing.assert_allclose(actual.numpy(), known.numpy(), atol=1e-15)
        with_nan = mm.grad(lambda z: mm.nanquantile(z, part))(x)
        np.testing.assert_allclose(with_nan.numpy(), actual.numpy(), atol=1e-15)
