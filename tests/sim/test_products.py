"""Products of arrays of any dimensions, in any layouts, against NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current, engine_of
from magmath.arrays.array import Array
from magmath.errors import ShapeError
from magmath.ops.product import gemm
from operation_bodies import leaf, placements

phases = [Phase.explicit, Phase.reuse, Phase.generate]
some = settings(max_examples=10, suppress_health_check=list(HealthCheck), phases=phases)
POOLS = [("inline", 1), ("shared", 2), ("messages", 3), ("shared", 4), ("messages", 7)]
on_pools = pytest.mark.parametrize(("kind", "workers"), POOLS)


def placed(data: st.DataObject, kind: str, workers: int, *values: Any) -> list[Array]:
    """The arrays, each in a layout of its own."""
    engine = engine_of(kind, workers)
    tensors = [torch.from_numpy(np.asarray(value)) for value in values]
    return [Array(leaf(engine, t, data.draw(placements(t, engine)))) for t in tensors]


def numbers(data: st.DataObject, shapes: Sequence[Sequence[int]], kind: str = "real") -> list[Any]:
    """Small whole numbers, whose sums of products are exact."""
    random = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    made = [random.integers(-3, 4, tuple(shape)).astype(np.float64) for shape in shapes]
    if kind == "real":
        return made
    return [x + 1j * random.integers(-3, 4, x.shape) for x in made]


@st.composite
def subscripts(draw: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """Subscripts for 1 to 4 operands: repeated letters, ellipses, stretched dimensions, with and
    without the result; and shapes that fit them."""
    extents = {c: draw(st.integers(0, 3)) for c in "ijkl"}
    ellipsis = draw(st.lists(st.integers(1, 3), max_size=2))
    parts, shapes = [], []
    for _ in range(draw(st.integers(1, 4))):
        letters = draw(st.lists(st.sampled_from("ijkl"), max_size=3))
        flat = draw(st.sets(st.sampled_from("ijkl")) if draw(st.booleans()) else st.just(set()))
        shape = [1 if c in flat else extents[c] for c in letters]
        place = draw(st.none() | st.integers(0, len(letters)))
        text = "".join(letters)
        if place is not None:
            dims = ellipsis[draw(st.integers(0, len(ellipsis))) :]
            dims = [1 if draw(st.booleans()) else n for n in dims]
            shape[place:place] = dims
            text = text[:place] + "..." + text[place:]
        parts.append(text)
        shapes.append(tuple(shape))
    text = ",".join(parts)
    if draw(st.booleans()):
        out = draw(st.permutations(sorted({c for c in text if c.isalpha()})))
        out = out[: draw(st.integers(0, len(out)))]
        text += "->" + "".join(out)
        if "..." in text:
            place = draw(st.integers(0, len(out)))
            text = text.partition("->")[0] + "->"
            text += "".join(out[:place]) + "..." + "".join(out[place:])
    elif "..." not in text and draw(st.booleans()):
        text = text.replace(",", " , ")
    return text, shapes


@on_pools
@given(data=st.data())
@some
def test_einsum(kind: str, workers: int, data: st.DataObject) -> None:
    text, shapes = data.draw(subscripts())
    values = numbers(data, shapes)
    expected = np.einsum(text, *values)
    with current(kind, workers):
        result = np.asarray(mm.einsum(text, *placed(data, kind, workers, *values)))
    np.testing.assert_array_equal(result, expected, err_msg=f"{text} of {shapes}")


@on_pools
@given(data=st.data())
@some
def test_tensordot(kind: str, workers: int, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), min_size=0, max_size=3))
    paired = data.draw(st.permutations(range(len(shape))))
    paired = paired[: data.draw(st.integers(0, len(shape)))]
    rest = data.draw(st.lists(st.integers(0, 4), max_size=2))
    other = [shape[d] for d in paired] + rest
    places = data.draw(st.permutations(range(len(other))))
    kinds = data.draw(st.sampled_from(["real", "complex"]))
    a, b = numbers(data, [shape, [other[i] for i in places]], kinds)
    axes = (list(paired), [places.index(i) - b.ndim for i in range(len(paired))])
    count = data.draw(st.integers(0, a.ndim))
    (c,) = numbers(data, [[*a.shape[a.ndim - count :], 2]], kinds)
    with current(kind, workers):
        x, y, z = placed(data, kind, workers, a, b, c)
        pairs, counted = mm.tensordot(x, y, axes=axes), mm.tensordot(x, z, axes=count)
        np.testing.assert_array_equal(np.asarray(pairs), np.tensordot(a, b, axes))
        np.testing.assert_array_equal(np.asarray(counted), np.tensordot(a, c, count))


@on_pools
@given(data=st.data())
@some
def test_matmul_of_vectors_matrices_and_stacks(
    kind: str, workers: int, data: st.DataObject
) -> None:
    m, k, n = (data.draw(st.integers(0, 5)) for _ in range(3))
    stack = data.draw(st.lists(st.integers(0, 3), max_size=2))
    batches = [[1 if data.draw(st.booleans()) else i for i in stack] for _ in range(2)]
    vectors = data.draw(
        st.sampled_from([(False, False), (True, False), (False, True), (True,) * 2])
    )
    shapes = [
        [k] if vectors[0] else [*batches[0], m, k],
        [k] if vectors[1] else [*batches[1], k, n],
    ]
    a, b = numbers(data, shapes, data.draw(st.sampled_from(["real", "complex"])))
    with current(kind, workers):
        x, y = placed(data, kind, workers, a, b)
        np.testing.assert_array_equal(np.asarray(x @ y), a @ b, err_msg=f"{shapes}")


@on_pools
@given(data=st.data())
@some
def test_vecdot_and_outer(kind: str, workers: int, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), -1))
    other = [
        1 if d != axis + len(shape) and data.draw(st.booleans()) else n for d, n in enumerate(shape)
    ]
    kinds = data.draw(st.sampled_from(["real", "complex"]))
    a, b, c, d = numbers(data, [shape, other, [3], [shape[0]]], kinds)
    with current(kind, workers):
        x, y, z, w = placed(data, kind, workers, a, b, c, d)
        expected = (a.conj() * b).sum(axis)
        np.testing.assert_array_equal(np.asarray(mm.vecdot(x, y, axis=axis)), expected)
        np.testing.assert_array_equal(np.asarray(mm.outer(z, w)), np.outer(c, d))


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("messages", 3), ("shared", 4)])
def test_half_types_are_added_up_in_float32(kind: str, workers: int) -> None:
    """4096 products of 1: halves that are added in half get stuck at 2048 or 256."""
    ones = np.ones((2, 4096), np.float32)
    with current(kind, workers):
        for dtype in (mm.float16, mm.bfloat16):
            columns = mm.Layout.split(1)
            a = mm.astype(mm.asarray(ones, layout=columns), dtype)
            for product in (a @ mm.matrix_transpose(a), mm.einsum("ij,kj->ik", a, a)):
                assert product.dtype == dtype
                np.testing.assert_array_equal(np.asarray(mm.astype(product, "float32")), 4096)


def test_gradient_of_a_network_of_contractions() -> None:
    """The gradient of a sum of einsums equals central differences."""
    random = np.random.default_rng(0)
    values = [random.standard_normal(s) for s in ((2, 3, 4), (4, 3), (2, 2, 3))]

    def total(a: Any, b: Any, c: Any, einsum: Any) -> Any:
        return einsum("Kij,ji,Ki->", a, b, c[0]) + einsum("abc,cb,aab->", a, b, c)

    with current("shared", 3):
        arrays = [mm.asarray(value, layout=mm.Layout.split(0)) for value in values]
        slopes = mm.grad(total(*arrays, mm.einsum), arrays)
        for position, slope in enumerate(slopes):
            direction = random.standard_normal(values[position].shape)
            ends = []
            for step in (1e-6, -1e-6):
                moved = list(values)
                moved[position] = values[position] + step * direction
                ends.append(total(*moved, np.einsum))
            result = float(np.sum(np.asarray(slope) * direction))
            np.testing.assert_allclose(result, (ends[0] - ends[1]) / 2e-6, rtol=1e-6)


BAD: list[tuple[str, Any, str]] = [
    ("unknown letter", lambda x, y: mm.einsum("ij,jk->il", x, y), "letters of the operands"),
    ("too few operands", lambda x, y: mm.einsum("ij,jk", x), "2 operands, not 1"),
    ("dimensions", lambda x, y: mm.einsum("ijk,jk", x, y), "'ijk' does not name"),
    ("lengths", lambda x, y: mm.einsum("ij,kj", x, y), "'j' stands for lengths 3 and 4"),
    ("diagonal", lambda x, y: mm.einsum("ii", x), "'i' stands for lengths 3 and 2"),
    ("ellipsis", lambda x, y: mm.einsum("...j->j", x), "broadcast dimensions"),
    ("pairs", lambda x, y: mm.tensordot(x, y, axes=((0, 0), (1, 1))), "different axes"),
    ("axes", lambda x, y: mm.tensordot(x, y, axes=3), "from 0 to 2"),
    ("paired lengths", lambda x, y: mm.tensordot(x, y, axes=((0,), (0,))), "differ in length"),
    ("vecdot", lambda x, y: mm.vecdot(x, y), "equal lengths"),
    ("vecdot axis", lambda x, y: mm.vecdot(x, x, axis=-3), "from -2 to -1"),
    ("matmul", lambda x, y: x @ x, "3 is not 2"),
]


@pytest.mark.parametrize(("call", "text"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_shapes_that_do_not_fit_raise_shape_error(call: Any, text: str) -> None:
    x, y = mm.ones((2, 3)), mm.ones((3, 4))
    with pytest.raises(ShapeError, match=text):
        call(x, y)


@pytest.mark.parametrize("kind", ["planned", "shared", "exact"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_update_of_rate_0_keeps_what_is_not_finite(
    kind: str, dtype: str, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BLAS would not read the operands; also in native loops, with BLAS in place of tiles."""
    monkeypatch.setattr(gemm, "MAX_TILED_MULTIPLICATIONS", 0)
    with current(kind, 1 if kind == "planned" else 2):
        w, x, d = (mm.ones((40, 40), dtype=getattr(mm, dtype)) for _ in range(3))
        d[3, 5] = value
        step = mm.compile(lambda w, rate: w - rate * (x.T @ d))
        many = mm.compile(lambda w, rate: mm.fori_loop(0, 40, lambda i, w: step(w, rate), w))
        for f in (step, many):
            expected = np.zeros((40, 40), bool)
            expected[:, 5] = True
            np.testing.assert_array_equal(np.isnan(f(w, 0.0).numpy()), expected)
            assert np.isfinite(f(w, 0.5).numpy()).sum() == 40 * 39


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("kind", ["planned", "shared", "exact"])
def test_updates_of_unsigned_integers_wrap(kind: str, dtype: str) -> None:
    random = np.random.default_rng(1)
    numbers = [random.integers(0, 200, (9, 9)).astype(dtype) for _ in range(3)]
    with current(kind, 1 if kind == "planned" else 2):
        arrays = [mm.asarray(x) for x in numbers]
        c, a, b = numbers
        f = mm.compile(lambda c, a, b, k: (c - k * (a @ b), c + k * (a @ b)))
        for k in (3, np.iinfo(dtype).max - 4):
            factor = np.asarray(k).astype(dtype)
            results = f(*arrays, mm.asarray(factor))
            for result, truth in zip(
                results, (c - factor * (a @ b), c + factor * (a @ b)), strict=True
            ):
                np.testing.assert_array_equal(result.numpy(), truth)
