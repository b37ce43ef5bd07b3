"""`mm.fft` against NumPy in any layout, its gradients, and the planned transfers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from magmath.arrays.array import Array
from magmath.engine import session
from magmath.graph import Graph
from magmath.layout import Layout, Rule
from magmath.ops.fft.bluestein import next_smooth
from magmath.passes.pipeline import run
from magmath.passes.placing import ChosenForm, PlacedValue, Placing
from magmath.passes.plan_decisions import PlacementList
from operation_bodies import leaf, placements

phases = [Phase.explicit, Phase.reuse, Phase.generate]
many = settings(max_examples=15, suppress_health_check=list(HealthCheck), phases=phases)

POOLS = [("inline", 1), ("shared", 2), ("shared", 4), ("messages", 3)]
every_pool = pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{k}" for k, n in POOLS])
COMPLEX = ["fft", "ifft", "irfft", "hfft"]
REAL = ["rfft", "ihfft"]
TYPES = ["float32", "float64", "complex64", "complex128"]


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    random = np.random.default_rng(seed)
    values = random.uniform(-1, 1, shape) + 1j * random.uniform(-1, 1, shape)
    return (values if dtype.startswith("complex") else values.real).astype(dtype)


def check_close(result: Array, expected: Any) -> None:
    assert result.shape == expected.shape
    assert result.dtype.name == expected.dtype.name
    limit = 1e-5 if expected.dtype.name in ("float32", "complex64") else 1e-13
    scale = np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(np.asarray(result), expected, rtol=0, atol=limit * scale)


@st.composite
def signals(draw: st.DrawFn, types: list[str], kind: str, workers: int) -> tuple[Any, Array]:
    """Numbers of one of the types, and an array of them in some layout."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    values = numbers(shape, draw(st.sampled_from(types)), draw(st.integers(0, 99)))
    engine = engine_of(kind, workers)
    tensor = torch.from_numpy(values)
    return values, Array(leaf(engine, tensor, draw(placements(tensor, engine))))


norms = st.sampled_from(["backward", "ortho", "forward"])


@every_pool
@pytest.mark.parametrize("name", [*COMPLEX, *REAL])
@given(data=st.data())
@settings(many, max_examples=10)
def test_one_axis(name: str, kind: str, workers: int, data: st.DataObject) -> None:
    with current(kind, workers):
        types = TYPES if name in COMPLEX else TYPES[:2]
        values, x = data.draw(signals(types, kind, workers))
        options = {
            "n": data.draw(st.none() | st.integers(1, 12)),
            "axis": data.draw(st.integers(-x.ndim, x.ndim - 1)),
            "norm": data.draw(norms),
        }
        if name in ("irfft", "hfft") and options["n"] is None and x.shape[options["axis"]] == 1:
            options["n"] = 1  # a signal of no elements is refused
        check_close(getattr(mm.fft, name)(x, **options), getattr(np.fft, name)(values, **options))


@every_pool
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@given(data=st.data())
@settings(many, max_examples=10)
def test_several_axes(name: str, kind: str, workers: int, data: st.DataObject) -> None:
    with current(kind, workers):
        types = TYPES[:2] if name == "rfftn" else TYPES
        values, x = data.draw(signals(types, kind, workers))
        count = data.draw(st.integers(1, x.ndim))
        axes = data.draw(st.permutations(range(x.ndim)))[:count]
        lengths = st.lists(st.integers(1, 9), min_size=count, max_size=count)
        given_lengths = name == "irfftn" or data.draw(st.booleans())
        s = data.draw(lengths) if given_lengths else None
        options = {"s": s, "axes": axes, "norm": data.draw(norms)}
        check_close(getattr(mm.fft, name)(x, **options), getattr(np.fft, name)(values, **options))


@every_pool
@given(data=st.data())
@many
def test_shifts_and_frequencies(kind: str, workers: int, data: st.DataObject) -> None:
    with current(kind, workers):
        values, x = data.draw(signals(TYPES, kind, workers))
        axes = data.draw(st.none() | st.integers(0, x.ndim - 1))
        check_close(mm.fft.fftshift(x, axes=axes), np.fft.fftshift(values, axes=axes))
        check_close(mm.fft.ifftshift(x, axes=axes), np.fft.ifftshift(values, axes=axes))
        n, d = data.draw(st.integers(1, 20)), data.draw(st.sampled_from([1.0, 0.25, 3.0]))
        for name in ("fftfreq", "rfftfreq"):
            result = getattr(mm.fft, name)(n, d=d, dtype=mm.float64)
            np.testing.assert_allclose(np.asarray(result), getattr(np.fft, name)(n, d), rtol=1e-14)
            assert getattr(mm.fft, name)(n).dtype == mm.float32


@pytest.mark.parametrize("name", ["rfft", "ihfft", "irfft", "hfft", "fft", "ifft"])
@pytest.mark.parametrize("n", [5, 8])
def test_gradients_are_those_of_differences(name: str, n: int) -> None:
    """Of a real function of a real array: a transform, weighted, and what brings it back."""
    back = {"rfft": "irfft", "ihfft": "hfft", "irfft": "rfft", "hfft": "ihfft"}
    with current("shared", 2):
        start = numbers((3, n), "float64")
        weights = numbers((3, n // 2 + 1), "complex128", 1)
        target = numbers((3, n), "float64", 2)

        def loss(x: Array) -> Array:
            half = mm.fft.rfft(x) * mm.asarray(weights)
            if name in ("fft", "ifft"):
                half = getattr(mm.fft, name)(half, axis=0, norm="ortho")
                return mm.sum(mm.asarray(target) * mm.fft.irfft(half, n=n))
            if name in ("rfft", "ihfft"):
                there = getattr(mm.fft, name)(x, norm="ortho") * mm.asarray(weights)
                return mm.sum(mm.asarray(target) * getattr(mm.fft, back[name])(there, n=n))
            y = getattr(mm.fft, name)(half, n=n, norm="forward")
            return mm.sum(mm.asarray(target) * y * y)

        x = mm.variable("x", start, dtype=mm.float64)
        slope = np.asarray(mm.grad(loss(x), x))
        step = 1e-6
        for index in np.ndindex(*start.shape):
            ends = []
            for sign in (1, -1):
                moved = start.copy()
                moved[index] += sign * step
                ends.append(float(loss(mm.asarray(moved))))
            assert abs((ends[0] - ends[1]) / (2 * step) - slope[index]) < 1e-6


# what is planned --------------------------------------------------------------------------------


def bytes_moved(x: Array) -> int:
    return x.explain().total.nbytes


@pytest.mark.parametrize("layout", [Layout.split(0), Layout.split(1), Layout.split(2)])
def test_a_transform_over_all_axes_moves_the_array_once(layout: Rule) -> None:
    shape, workers = (32, 32, 64), 4
    with current("messages", workers):
        x = mm.asarray(numbers(shape, "complex64"), layout=layout)
        whole = 8 * 32 * 32 * 64
        assert bytes_moved(mm.fft.fftn(x)) == whole * (workers - 1) // workers


def test_a_grid_becomes_slabs_where_they_are_cheaper() -> None:
    with current("messages", 4):
        x = mm.asarray(numbers((64, 64, 64), "complex64"), layout=Layout.grid((2, 2)))
        assert bytes_moved(mm.fft.fftn(x)) == 8 * 64**3 * 3 // 4


def test_axes_that_are_whole_are_transformed_where_they_lie() -> None:
    with current("messages", 4):
        x = mm.asarray(numbers((32, 32, 64), "complex64"), layout=Layout.cyclic(0))
        assert bytes_moved(mm.fft.fftn(x, axes=(1, 2))) == 0


def test_the_last_transform_is_stored_in_the_result() -> None:
    with current("shared", 2):
        x = mm.asarray(numbers((256, 256), "complex64"), layout=Layout.split(0))
        engine = engine_of("shared", 2)
        planned = run(engine.pending_graph(Graph((mm.fft.fftn(x).node,))), engine.environment)
        (last,) = planned.graph.outputs
        assert [node.name for node in (last, last.inputs[0])] == ["fft_c2c", "redistribute"]
        assert planned.buffers.alias == {last.inputs[0]: last}


LONG = [((64 * 66,), 0), ((64 * 65,), 0), ((65 * 68,), 0), ((2, 65 * 67, 3), 1)]
"""Of even and odd numbers of rows and of columns."""


@contextmanager
def in_four_steps() -> Iterator[None]:
    """Within, what can be computed in four steps is, however small it is."""
    asked, placed = [], Placing._apply_form

    def tried(
        self: Placing, decision: Any, decomposition: PlacementList | None, *operands: Any
    ) -> tuple[PlacedValue, ChosenForm]:
        result = placed(self, decision, decomposition, *operands)
        names = [] if decomposition is None else [node.name for node in decomposition.nodes]
        if any(name.startswith("fft") for name in names):
            asked.append(names)
            self._cost -= 10**12
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Placing, "_apply_form", tried)
        yield
    assert asked


@pytest.mark.parametrize("kind", ["shared", "messages"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "ihfft", "irfft", "hfft"])
@pytest.mark.parametrize(("shape", "axis"), LONG)
def test_a_long_axis_is_transformed_in_four_steps(
    kind: str, name: str, shape: tuple[int, ...], axis: int
) -> None:
    real, to_real = name in REAL, name in ("irfft", "hfft")
    held = (*shape[:axis], shape[axis] // 2 + 1, *shape[axis + 1 :]) if to_real else shape
    values = numbers(held, "float64" if real else "complex128")
    options = {"n": shape[axis]} if to_real else {}
    with current(kind, 4), in_four_steps():
        x = mm.asarray(values, layout=Layout.split(axis))
        result = getattr(mm.fft, name)(x, axis=axis, norm="ortho", **options)
        assert "fft_twiddle" in str(result.explain())
        check_close(result, getattr(np.fft, name)(values, axis=axis, norm="ortho", **options))


@pytest.mark.parametrize("name", ["fft", "rfft"])
def test_four_steps_are_taken_where_a_gather_is_dear(name: str) -> None:
    with current("messages", 4):
        values = numbers((1 << 18,), "float32" if name == "rfft" else "complex64")
        result = getattr(mm.fft, name)(mm.asarray(values, layout=Layout.split(0)))
        assert "fft_twiddle" in str(result.explain())


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
@given(data=st.data())
def test_axes_that_are_named_again_are_transformed_again(name: str, data: st.DataObject) -> None:
    values = numbers((3, 4, 2), "float64" if name == "rfftn" else "complex128")
    axes = data.draw(st.lists(st.integers(-3, 2), min_size=1, max_size=4))
    extents = data.draw(st.none() | st.tuples(*[st.integers(2, 5) for _ in axes]))
    expected = getattr(np.fft, name)(values, s=extents, axes=axes)
    with current("shared", 2):
        x = mm.asarray(values, layout=Layout.split(data.draw(st.integers(0, 2))))
        actual = getattr(mm.fft, name)(x, s=extents, axes=axes)
        np.testing.assert_allclose(actual.numpy(), expected, atol=1e-12)


# bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["fft", "ifft2", "rfft", "irfft", "hfft", "ihfft", "irfftn"])
def test_half_types_are_transformed_in_float32(name: str, dtype: str) -> None:
    with current("inline"):
        x = mm.astype(mm.asarray(np.random.default_rng(0).normal(size=(4, 6))), dtype)
        expected = getattr(mm.fft, name)(mm.astype(x, "float32"))
        computed = getattr(mm.fft, name)(x)
        assert computed.dtype == expected.dtype
        np.testing.assert_array_equal(computed.numpy(), expected.numpy())
        if dtype == "float16":
            theirs = getattr(np.fft, name)(x.numpy())
            np.testing.assert_allclose(computed.numpy(), theirs, rtol=1e-2, atol=1e-2)


def test_what_cannot_be_transformed_is_refused() -> None:
    with current("inline"):
        x = mm.ones((3, 4))
        with pytest.raises(TypeError, match="rfft: takes real floating point, was given complex64"):
            mm.fft.rfft(mm.astype(x, mm.complex64))
        with pytest.raises(ValueError, match="fft: axis 2 is out of range"):
            mm.fft.fft(x, axis=2)
        with pytest.raises(ValueError, match="lengths must be at least 1, were .0,."):
            mm.fft.fft(x, n=0)
        with pytest.raises(ValueError, match="norm must be \"backward\".*was 'half'"):
            mm.fft.fft(x, norm="half")
        with pytest.raises(ValueError, match="irfft: the result would have 0 elements"):
            mm.fft.irfft(mm.ones((1,)))
        with pytest.raises(ValueError, match="needs a length for each axis"):
            mm.fft.fftn(x, s=(3,), axes=(0, 1))


# lengths without factors
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(("least", "expected"), [(1, 1), (7, 8), (8197, 8640), (10007, 10125)])
def test_lengths_with_factors(least: int, expected: int) -> None:
    assert next_smooth(least) == expected


@pytest.mark.parametrize(("kind", "workers"), [("shared", 3), ("messages", 4)])
@pytest.mark.parametrize("dtype", TYPES)
def test_a_split_axis_of_any_length_is_transformed_in_parts(
    kind: str, workers: int, dtype: str
) -> None:
    """A prime length, and one with a factor that is too small to divide it by."""
    with current(kind, workers):
        engine = session.engine()
        engine.environment = replace(engine.environment, max_moved_bytes=0)
        for number, (n, shape, axis) in enumerate(
            [(4099, (4099,), 0), (4106, (4106, 1), 0), (4099, (1, 4099), 1)]
        ):
            x = numbers(shape, dtype)
            a = mm.asarray(x, layout=Layout.split(axis))
            norm = ("backward", "ortho", "forward")[number]
            for name in REAL if x.dtype.kind == "f" else COMPLEX:
                size = {"n": 2 * n - 1 - number} if name in ("irfft", "hfft") else {}
                result = getattr(mm.fft, name)(a, axis=axis, norm=norm, **size)
                cost = result.explain()
                lines = str(cost).splitlines()
                transforms = [line for line in lines if "= fft_" in line]
                assert all(f"{n}" not in line.split("=")[0] for line in transforms), lines
                check_close(result, getattr(np.fft, name)(x, axis=axis, norm=norm, **size))


def test_the_gradient_of_a_transform_of_prime_length() -> None:
    with current("messages", 2):
        engine = session.engine()
        engine.environment = replace(engine.environment, max_moved_bytes=0)
        x = mm.asarray(numbers((4099,), "float64"), layout=Layout.split(0))
        total = mm.sum(mm.square(mm.abs(mm.fft.fft(mm.astype(x, mm.complex128)))))
        slope = mm.grad(total, [x])[0]
        np.testing.assert_allclose(np.asarray(slope), 2 * 4099 * np.asarray(x), atol=1e-8)
