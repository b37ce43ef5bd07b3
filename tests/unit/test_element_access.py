"""Loops that read and write single elements: NumPy's values, whatever else refers to the arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.arrays.indexing.part_programs import SliceWriteProgram
from magmath.engine import session
from magmath.runtime import Pool

KINDS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]


@pytest.fixture(params=KINDS, ids=lambda p: f"{p[0]}-{p[1]}", scope="module")
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with current(*request.param) as pool:
        yield pool


def _index(data: st.DataObject, shape: tuple[int, ...]) -> Any:
    place = tuple(data.draw(st.integers(-n, n - 1)) for n in shape)
    return place[0] if len(place) == 1 else place


def _read(x: Any, index: Any, way: str) -> Any:
    if way == "item":
        return x[index].item()
    if way == "item of":
        return x.item(*index) if isinstance(index, tuple) else x.item(index)
    if way == "bool":
        return bool(x[index])
    return int(x[index]) if way == "int" else float(x[index])


@given(data=st.data())
def test_reads_and_writes_of_elements(pool: Pool, data: st.DataObject) -> None:
    """Random reads, writes, copies, expressions that are read later, and rows that are written."""
    shape = data.draw(st.sampled_from([(7,), (3, 4), (5, 1)]))
    dtype = data.draw(st.sampled_from(["int64", "float32", "uint8", "bool"]))
    theirs = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 50, shape)
    theirs = theirs.astype(dtype)
    split = data.draw(st.sampled_from([None, mm.Layout.split(0)]))
    ours = mm.asarray(theirs.copy(), layout=split)
    kept: list[tuple[Any, Any]] = []
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(
            st.sampled_from(["read", "write", "copy", "named", "later", "row", "move"])
        )
        index, other = _index(data, shape), _index(data, shape)
        if step == "read":
            way = data.draw(st.sampled_from(["float", "int", "bool", "item", "item of"]))
            assert _read(ours, index, way) == _read(theirs, index, way)
        elif step == "write":
            value = data.draw(st.integers(0, 1 if dtype == "bool" else 99))
            ours[index] = theirs[index] = bool(value) if dtype == "bool" else value
        elif step == "move":
            ours[index], theirs[index] = ours[other], theirs[other]
        elif step == "row":
            ours[0], theirs[0] = ours[-1], theirs[-1]
        elif step == "copy":
            kept.append((ours.copy(), theirs.copy()))
        elif step == "named":
            kept.append((ours[index], theirs[index].copy()))
        else:
            kept.append((ours * 1, theirs * 1))
    for actual, known in [*kept, (ours, theirs)]:
        np.testing.assert_array_equal(actual.numpy(), known)


def test_an_element_without_a_name_needs_no_program(pool: Pool) -> None:
    x = mm.arange(60)
    mm.evaluate(x, wait=True)
    assert float(x[3]) == 3
    before = pool.traffic.messages
    assert sum(int(x[i]) for i in range(60)) == 59 * 30
    assert pool.is_inline or pool.traffic.messages < before + 5
    with mm.profile() as profile:
        assert [x[i].item() for i in (0, -1)] == [0, 59]
        assert (float(x[1]), complex(x[2]), bool(x[0]), [8][x[0]]) == (1, 2, False, 8)
    assert not profile.runs
    named = x[5]
    assert int(named) == 5
    assert named.is_computed
    with pytest.raises(IndexError, match="60"):
        float(x[60])


def test_gradients_through_small_writes(pool: Pool) -> None:
    x = mm.asarray([1.0, 2.0, 3.0])
    y = mm.zeros(3)
    for i in range(3):
        y[i] = x[2 - i] * x[i]
    np.testing.assert_array_equal(mm.grad(mm.sum(y * y), x).numpy(), [36.0, 32.0, 12.0])


def test_few_small_writes_are_computed_together() -> None:
    """Where they are not computed at once; and large operands are not kept for them."""
    with current("inline"):
        session.engine().eager_computation.max_eager_bytes = 0
        x = mm.arange(100)
        mm.evaluate(x)
        for q in range(10):
            x[q] = x[q + 1] * 2
        assert not x.is_computed
        assert x.tolist()[:11] == [2 * (q + 1) for q in range(10)] + [10]
    with current("inline"):
        sums = mm.zeros(5, dtype=mm.float64)
        for q in range(5):
            sums[q] = mm.sum(mm.ones(100_000, dtype=mm.float64) * q)
            assert sums.is_computed


@pytest.mark.parametrize("error", [IndexError, KeyError])
def test_writes_into_memory_hide_errors_of_numpy_alone(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of NumPy are raised again by an operation, at its line."""

    def write(*_: Any) -> None:
        raise error("of a test")

    with current("inline"):
        x = mm.zeros(100_000)
        for i in range(3):  # the second write of a kind is recorded
            x[i] = 1.0
        monkeypatch.setattr(SliceWriteProgram, "write", write)
        if error is IndexError:
            x[5] = 1.0
            assert float(x[5]) == 1.0
        else:
            with pytest.raises(KeyError, match="of a test"):
                x[5] = 1.0


BOXES = mm.Layout.blocks([(((0, 2), (0, 4)), 0), (((2, 4), (0, 4)), 0)])


@pytest.mark.parametrize("layout", [None, mm.Layout.split(0), BOXES], ids=["any", "rows", "boxes"])
def test_elements_of_results_of_repeated_calls(pool: Pool, layout: Any) -> None:
    """A result may be computed in the memory of an earlier one."""

    @mm.compile
    def function(x: mm.Array) -> mm.Array:
        return (x + 1).redistribute(layout) if layout is not None else x + 1

    for k in range(6):
        result = function(mm.asarray(np.full((4, 4), k, np.float32)))
        assert [float(result[0, 0]), float(result[3, 1])] == [k + 1, k + 1]
        np.testing.assert_array_equal(result.numpy(), k + 1)
