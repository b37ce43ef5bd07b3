"""Convolutions of networks by Winograd's algorithms and Fourier transforms, on one worker and on several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from magmath.arrays.array import Array
from magmath.arrays.inputs.operands import promoted_nodes
from magmath.kernels.conv import fourier_convolution, winograd
from magmath.kernels.dispatch.tuner import Tuner
from magmath.ops.conv.convolution import correlation
from operation_bodies import leaf, placements

POOLS = [("inline", 1), ("shared", 2), ("messages", 3)]
TOLERANCE = {  # of sums of 10 times as many numbers, and larger ones, by the stride
    method.stride: 10 * bound for method, bound in winograd.ERROR_BOUND.items() if method.tile == 4
}


def conv2d(x: Array, w: Array, stride: int = 1, pad: int = 1) -> Array:
    a, b = promoted_nodes("conv2d", x, w)
    pads = ((pad, pad), (pad, pad))
    return Array(correlation(a, b, stride=(stride, stride), padding=pads, dilation=(1, 1)))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes F(4×4) the choice for all problems that it accepts; returns the passes that it
    computes."""
    made: list[str] = []
    bound = winograd.bind

    def choice(tuner: Tuner, key: str, names: tuple[str, ...]) -> str:
        return next((name for name in names if name.startswith("winograd 4×4")), names[0])

    def bind(problem: Any, method: winograd.Method) -> Any:
        made.append(problem.direction)
        return bound(problem, method)

    monkeypatch.setattr(Tuner, "known_choice", choice)
    monkeypatch.setattr(winograd, "bind", bind)
    return made


@pytest.fixture
def transformed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes Fourier transforms the choice for all problems that they can compute; returns the
    passes that they compute."""
    made: list[str] = []
    call = fourier_convolution._Plan.call

    def choice(tuner: Tuner, key: str, names: tuple[str, ...]) -> str:
        return "fourier" if "fourier" in names else names[0]

    def noted(plan: fourier_convolution._Plan) -> Callable[[], None]:
        run = call(plan)

        def noted_run() -> None:
            made.append(plan.direction)
            run()

        return noted_run

    monkeypatch.setattr(fourier_convolution, "MAX_OPERATIONS", 9.0)  # tiles of few channels too
    monkeypatch.setattr(Tuner, "known_choice", choice)
    monkeypatch.setattr(fourier_convolution._Plan, "call", noted)
    return made


def check_any_layout(
    kind: str, workers: int, numbers: list[Any], bound: float, stride: int = 1, pad: int = 1
) -> None:
    """Compare a convolution and its gradients, in random layouts, with float64."""
    expected = gradients(*numbers, stride, pad)

    @given(st.data())
    @settings(max_examples=6, deadline=None)
    def check(data: st.DataObject) -> None:
        with current(kind, workers):
            engine = engine_of(kind, workers)
            tensors = [torch.from_numpy(values) for values in numbers]
            placed = [data.draw(placements(tensor, engine)) for tensor in tensors]
            x, w, g = (
                Array(leaf(engine, tensor, layout))
                for tensor, layout in zip(tensors, placed, strict=True)
            )
            y = conv2d(x, w, stride, pad)
            results = [y, *mm.grad(mm.sum(y * g), [x, w])]
            for result, exact in zip(results, expected, strict=True):
                error = np.abs(np.asarray(result) - exact).max() / exact.std()
                assert error <= bound

    check()


def gradients(x: Any, w: Any, g: Any, stride: int, pad: int) -> list[Any]:
    """Return y and both gradients in float64, by torch."""
    a, b = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (x, w))
    y = torch.nn.functional.conv2d(a, b, stride=stride, padding=pad)
    y.backward(torch.tensor(g, dtype=torch.float64))
    return [tensor.detach().numpy() for tensor in (y, a.grad, b.grad) if tensor is not None]


@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{k}" for k, n in POOLS])
@pytest.mark.parametrize("stride", [1, 2])
def test_winograd_in_any_layout_agrees_with_one_worker(
    kind: str, workers: int, stride: int, executed: list[str]
) -> None:
    random = np.random.default_rng(5)
    numbers = [
        random.standard_normal(shape).astype("float32")
        for shape in ((3, 32, 22, 19), (40, 32, 3, 3), (3, 40, -(-22 // stride), -(-19 // stride)))
    ]
    check_any_layout(kind, workers, numbers, TOLERANCE[stride], stride=stride)
    assert workers > 1 or {"forward", "data", "filter"} <= set(executed)


@pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{k}" for k, n in POOLS])
def test_fourier_transforms_in_any_layout_agree_with_one_worker(
    kind: str, workers: int, transformed: list[str]
) -> None:
    random = np.random.default_rng(8)
    numbers = [
        random.standard_normal(shape).astype("float32")
        for shape in ((3, 12, 17, 14), (10, 12, 7, 7), (3, 10, 17, 14))
    ]
    bound = 10 * fourier_convolution.ERROR_BOUND[torch.float32]
    check_any_layout(kind, workers, numbers, bound, pad=3)
    assert workers > 1 or set(transformed) == {"forward", "data", "filter"}


def test_options_restrict_the_algorithms(executed: list[str]) -> None:
    random = np.random.default_rng(6)
    x = random.standard_normal((2, 32, 24, 24)).astype("float32")
    w = random.standard_normal((32, 32, 3, 3)).astype("float32")
    for options, used in (({}, True), ({"winograd": False}, False)):
        with mm.init(0, **options):
            y = np.asarray(conv2d(mm.asarray(x), mm.asarray(w)))
        assert ("forward" in executed) == used
        exact = torch.nn.functional.conv2d(*map(torch.from_numpy, (x, w)), padding=1).numpy()
        assert np.abs(y - exact).max() <= 1e-4 * exact.std()
        executed.clear()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_workspace_limit_restricts_the_algorithms(workers: int, executed: list[str]) -> None:
    """In a pool in this process, whose workers are threads."""
    random = np.random.default_rng(9)
    x = random.standard_normal((4, 32, 24, 24)).astype("float32")
    w = random.standard_normal((32, 32, 3, 3)).astype("float32")
    for options, used in (({}, True), ({"workspace_limit": 1 << 10}, False)):
        with mm.init(workers, launcher="threads", **options):
            np.asarray(conv2d(mm.asarray(x, layout=mm.Layout.split(0)), mm.asarray(w)))
        assert ("forward" in executed) == used
        executed.clear()


@pytest.mark.parametrize("limit", [-1, 2.5, "1 GB"])
def test_a_wrong_workspace_limit_is_an_error(limit: object) -> None:
    with pytest.raises((mm.errors.OptionError, TypeError, ValueError), match="workspace_limit"):
        mm.init(0, workspace_limit=limit)


def test_deterministic_mode_uses_the_direct_sum_only() -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((2, 32, 24, 24)).astype("float32")
    w = random.standard_normal((32, 32, 3, 3)).astype("float32")
    with mm.init(0, deterministic=True):
        results = [np.asarray(conv2d(mm.asarray(x), mm.asarray(w))) for _ in range(20)]
    assert all(np.array_equal(results[0], other) for other in results[1:])


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 3)])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_parts_of_sums_of_half_types_are_added_in_float32(
    half: str, kind: str, workers: int, is_transposed: bool
) -> None:
    """The gradient of filters from images on several workers, whose parts exceed float16, or cancel
    only before they are rounded."""
    x = np.full((384, 1, 16, 16), 2.0)
    x[5:300, :, 3] = 3.0
    signs = np.ones((384, 1, 1, 1))
    signs[192:] = -1
    convolution = mm.nn.functional.conv_transpose2d if is_transposed else mm.nn.functional.conv2d

    def gradient(dtype: str) -> Any:
        layout = mm.Layout.split(0) if workers > 1 else None
        images, factors = (mm.asarray(v, dtype=dtype, layout=layout) for v in (x, signs))

        def loss(w: Any) -> Any:
            y = convolution(images, w, padding=1) * factors
            return mm.sum(mm.astype(y, mm.float32))

        return mm.compile(mm.grad(loss))(mm.ones((1, 1, 3, 3), dtype=dtype))

    with current(kind, workers):
        result = gradient(half)
        assert result.dtype is getattr(mm, half)
        exact = mm.astype(gradient("float32"), result.dtype)
        np.testing.assert_array_equal(mm.astype(result, mm.float32), mm.astype(exact, mm.float32))


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("space", [1, 2, 3, 4, 5])
def test_half_types_are_rounded_once_in_any_number_of_dimensions(
    half: str, kind: str, workers: int, space: int
) -> None:
    """These sums are exact in float32. Many parts of them exceed float16, or are rounded by it."""
    random = np.random.default_rng(space)
    x_shape, w_shape = (2, 3, *[3] * space), (4, 3, *[2] * space)
    numbers = [
        random.integers(-255, 256, x_shape) * 128,
        random.integers(-3, 4, w_shape),
        random.integers(-3, 4, (2, 4, *[2] * space)),
    ]

    def results(dtype: str) -> list[Any]:
        layout = mm.Layout.split(0) if workers > 1 else None
        x, w, g = (mm.asarray(v.astype("float32"), layout=layout) for v in numbers)
        x, w, g = (mm.astype(v, half) for v in (x, w, g))
        x, w, g = (mm.astype(v, dtype) for v in (x, w, g))
        y = mm.nn.functional.conv(x, w)
        arrays = [y, *mm.grad(mm.sum(y * g), [x, w])]
        return [np.asarray(mm.astype(mm.astype(v, half), "float32")) for v in arrays]

    with current(kind, workers):
        for result, expected in zip(results(half), results("float32"), strict=True):
            np.testing.assert_array_equal(result, expected)
