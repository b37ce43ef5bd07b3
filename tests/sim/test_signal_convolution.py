"""Convolution and correlation against SciPy in any layout, and their transfers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.signal
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from magmath.arrays.array import Array
from magmath.core.dtypes import float32
from magmath.graph import Graph
from magmath.kernels.conv import fourier_convolution
from magmath.kernels.dispatch.tuner import Tuner
from magmath.layout import Layout
from magmath.ops.conv.convolution import correlation
from magmath.ops.leaves import input_leaf
from magmath.passes.place import place
from operation_bodies import leaf, placements

phases = [Phase.explicit, Phase.reuse, Phase.generate]
many = settings(max_examples=20, suppress_health_check=list(HealthCheck), phases=phases)
POOLS = [("inline", 1), ("shared", 3), ("messages", 2)]
every_pool = pytest.mark.parametrize(("kind", "workers"), POOLS, ids=[f"{n}-{k}" for k, n in POOLS])
EXACT = ["int32", "int64", "uint8"]
ROUNDED = ["float32", "float64", "complex64", "complex128"]


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    random = np.random.default_rng(seed)
    values = random.integers(0 if dtype == "uint8" else -4, 5, shape).astype(dtype)
    if dtype.startswith("complex"):
        values = values + 1j * random.integers(-4, 5, shape)
    return values.astype(dtype)


def placed(data: st.DataObject, values: Any, kind: str, workers: int) -> Array:
    engine = engine_of(kind, workers)
    tensor = torch.from_numpy(values)
    return Array(leaf(engine, tensor, data.draw(placements(tensor, engine))))


@every_pool
@pytest.mark.parametrize("name", ["convolve", "correlate"])
@given(data=st.data())
@many
def test_any_layout_agrees_with_scipy(
    name: str, kind: str, workers: int, data: st.DataObject
) -> None:
    with current(kind, workers):
        ndim = data.draw(st.integers(1, 4))
        shapes = st.lists(st.integers(1, 9 if ndim < 3 else 4), min_size=ndim, max_size=ndim)
        first, second = tuple(data.draw(shapes)), tuple(data.draw(shapes))
        mode = data.draw(st.sampled_from(["full", "same", "valid"]))
        if mode == "valid":
            second = tuple(min(m, n) for m, n in zip(first, second, strict=True))
            if data.draw(st.booleans()):
                first, second = second, first
        method = data.draw(st.sampled_from(["auto", "direct", "fft"]))
        dtype = data.draw(st.sampled_from(ROUNDED if method == "fft" else [*ROUNDED, *EXACT]))
        a, b = numbers(first, dtype, 1), numbers(second, dtype, 2)
        x, y = placed(data, a, kind, workers), placed(data, b, kind, workers)
        expected = getattr(scipy.signal, name)(a, b, mode=mode, method="direct")
        result = np.asarray(getattr(mm.signal, name)(x, y, mode=mode, method=method))
        assert result.dtype == expected.dtype
        if dtype in EXACT:
            np.testing.assert_array_equal(result, expected)
        else:
            limit = 1e-5 if dtype in ("float32", "complex64") else 1e-13
            scale = np.abs(expected).max(initial=1.0) + np.abs(a).sum()
            np.testing.assert_allclose(result, expected, rtol=0, atol=limit * scale)


@pytest.mark.parametrize("method", ["direct", "fft"])
def test_gradients_agree_with_differences(method: str) -> None:
    with current("shared", 2):
        signal, weights = numbers((6, 5), "float64", 1), numbers((8, 6), "float64", 3)
        kernel = mm.variable("kernel", numbers((3, 2), "float64", 2), dtype=mm.float64)
        x = mm.asarray(signal, layout=Layout.split(0))

        def loss(w: Array) -> Array:
            return mm.sum(mm.asarray(weights) * mm.square(mm.signal.convolve(x, w, method=method)))

        slope, start = np.asarray(mm.grad(loss(kernel), kernel)), np.asarray(kernel)
        for index in np.ndindex(3, 2):
            unit = np.zeros((3, 2))
            unit[index] = 1e-6
            ends = [float(loss(mm.asarray(start + side * unit))) for side in (1, -1)]
            assert abs((ends[0] - ends[1]) / 2e-6 - slope[index]) < 1e-4 * max(1, abs(slope[index]))


# what is planned --------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 4])
def test_neighbours_exchange_edges_of_a_kernels_length(workers: int) -> None:
    """kernel - 1 rows cross each cut between two workers, in every mode."""
    with current("messages", workers):
        x = mm.asarray(np.zeros((4096, 512), "float32"), layout=Layout.split(0))
        w = mm.ones((5, 3), layout=Layout.replicated())
        steps = mm.signal.convolve(x, w, mode="same", method="direct").explain().instructions
        halos = sum(step.nbytes for step in steps if step.operation == "exchange")
        assert halos == 4 * 512 * (5 - 1) * (workers - 1)


@pytest.mark.parametrize("split", ["batch", "channels", "rows"])
def test_images_stay_where_they_lie(split: str) -> None:
    """A split batch moves nothing, split channels leave sums pending, split rows have halos."""
    engine = engine_of("messages", 2)
    mesh, even = engine.pool.mesh, Layout.even
    wide, deep = ((16, 32, 64, 64), (24, 32, 3, 3)), ((2, 512, 64, 64), (4, 512, 3, 3))
    x_shape, w_shape = deep if split == "channels" else wide
    layouts = {
        "batch": (even(x_shape, mesh, 0), Layout.replicated_on(w_shape, mesh)),
        "channels": (even(x_shape, mesh, 1), even(w_shape, mesh, 1)),
        "rows": (even(x_shape, mesh, 2), Layout.replicated_on(w_shape, mesh)),
    }
    x, w = (
        input_leaf(shape, float32, layout, None)
        for shape, layout in zip((x_shape, w_shape), layouts[split], strict=True)
    )
    node = correlation(x, w, stride=(1, 1), padding=((1, 1), (1, 1)), dilation=(1, 1))
    graph = place(Graph((node,)), engine.environment)
    steps = [n.name for n in graph.nodes if n.name != "input"]
    assert (
        steps
        == {
            "batch": ["correlation"],
            "channels": ["correlation", "redistribute"],
            "rows": ["redistribute", "correlation"],
        }[split]
    )


def operations(x: Array) -> str:
    return " ".join(step.operation for step in x.explain().instructions)


def test_the_cheaper_method_is_taken() -> None:
    with current("inline"):
        long, short = mm.zeros((1 << 18,)), mm.zeros((5,))
        assert "fft" not in operations(mm.signal.convolve(long, short))
        assert "fft" in operations(mm.signal.convolve(long, long))
        assert "fft" not in operations(mm.signal.convolve(long, long, method="direct"))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("method", ["auto", "direct", "fft"])
def test_kernels_may_be_computed_from_variables(method: str, workers: int) -> None:
    """Compiled functions keep such kernels and their content ids, which are one more operand."""
    with current("shared", workers):
        w = mm.variable("w", mm.asarray(np.linspace(-1, 1, 512, dtype="float32")))
        f = mm.compile(lambda x: mm.signal.convolve(x, mm.exp(w), method=method))
        signal = np.random.default_rng(1).normal(size=1 << 14).astype("float32")
        for _ in range(2):
            expected = scipy.signal.convolve(signal, np.exp(np.asarray(w)))
            np.testing.assert_allclose(np.asarray(f(mm.asarray(signal))), expected, atol=2e-3)
            w.assign(w / 2)


@pytest.mark.parametrize("shape", [(1 << 14,), (192, 192)])
def test_direct_sums_reach_no_other_elements(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fourier transforms would make all elements NaN; the gradients are sums of products too."""

    def choice(tuner: Tuner, key: str, names: tuple[str, ...]) -> str:
        return "fourier" if "fourier" in names else names[0]

    @mm.compile
    def results(spike: Array, w: Array) -> list[Array]:
        convolve = partial(mm.signal.convolve, mode="same", method="direct")
        x = mm.ones(shape)
        return [convolve(spike, w), mm.grad(mm.sum(convolve(x, w) * spike), x)]

    monkeypatch.setattr(Tuner, "known_choice", choice)
    monkeypatch.setattr(fourier_convolution, "MAX_OPERATIONS", 9.0)
    spike = np.zeros(shape, "float32")
    spike[(0,) * len(shape)] = np.inf
    kernel = np.ones([n // 8 for n in shape], "float32")
    with current("inline"):
        for result in results(mm.asarray(spike), mm.asarray(kernel)):
            reached = np.asarray(result)
            assert not np.isnan(reached).any()
            assert 0 < np.isinf(reached).sum() <= kernel.size


def test_what_cannot_be_convolved_is_refused() -> None:
    with current("inline"):
        x, y = mm.ones((4, 3)), mm.ones((3, 4))
        with pytest.raises(ValueError, match=r'mode "valid" one array must fit.*\(4, 3\) and'):
            mm.signal.convolve(x, y, mode="valid")
        with pytest.raises(ValueError, match="equally many dimensions.*4, 3.*3,"):
            mm.signal.correlate(x, mm.ones(3))
        with pytest.raises(ValueError, match="mode is one of full, same, valid.*'half'"):
            mm.signal.convolve(x, y, mode="half")
        with pytest.raises(TypeError, match='"fft" takes float32.*was given float16'):
            mm.signal.convolve(
                mm.ones(3, dtype="float16"), mm.ones(3, dtype="float16"), method="fft"
            )
