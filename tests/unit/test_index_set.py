"""IndexSet against Python's own sets of integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magmath.core.index_set import IndexSet, tile_shape
from magmath.errors import LayoutError


def from_indices(indices: set[int]) -> IndexSet:
    ordered = sorted(indices)
    return IndexSet.from_segments(ordered, [i + 1 for i in ordered])


@st.composite
def regular_indices(draw: st.DrawFn) -> set[int]:
    start, stop = draw(st.integers(0, 30)), draw(st.integers(0, 60))
    block, period = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    return {i for i in range(start, stop) if (i - start) % period < block}


index_sets = st.one_of(
    st.sets(st.integers(0, 40)),
    regular_indices(),
    st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda ends: set(range(*ends))),
)


@given(index_sets)
def test_holds_its_indices_in_order(members: set[int]) -> None:
    indices = from_indices(members)
    assert indices.indices().tolist() == sorted(members)
    assert indices.indices().dtype == np.int64
    assert indices.size == len(indices) == len(members)
    assert {i for i in range(70) if i in indices} == members
    starts, stops = indices.segments()
    assert [i for a, b in zip(starts, stops, strict=True) for i in range(a, b)] == sorted(members)


@given(index_sets)
def test_selects_from_an_array_by_a_slice_where_one_does(members: set[int]) -> None:
    indices = from_indices(members)
    selector = indices.selector()
    assert np.arange(100)[selector].tolist() == sorted(members)
    steps = set(np.diff(sorted(members)).tolist())
    assert isinstance(selector, slice) == (len(steps) <= 1)
    assert indices.is_range == (steps <= {1})


@given(st.integers(0, 20), st.integers(0, 60), st.integers(1, 6), st.integers(1, 9))
def test_regular_sets_are_canonical(start: int, stop: int, block: int, period: int) -> None:
    regular = IndexSet.regular(start, stop, block, period)
    listed = from_indices({i for i in range(start, stop) if (i - start) % period < block})
    assert regular == listed
    assert hash(regular) == hash(listed)
    assert repr(regular) == repr(listed)
    assert regular.indices().tolist() == listed.indices().tolist()
    assert regular.size == listed.size


@given(index_sets, index_sets)
def test_equal_exactly_when_the_indices_are(a: set[int], b: set[int]) -> None:
    assert (from_indices(a) == from_indices(b)) == (a == b)


@given(index_sets, st.integers(0, 20))
def test_shifted_sets_are_canonical(members: set[int], offset: int) -> None:
    shifted, listed = (
        from_indices(members).shifted(offset),
        from_indices({i + offset for i in members}),
    )
    assert shifted == listed
    assert hash(shifted) == hash(listed)
    assert shifted.indices().tolist() == listed.indices().tolist()


@given(index_sets, index_sets)
def test_intersect(a: set[int], b: set[int]) -> None:
    common = from_indices(a).intersect(from_indices(b))
    assert common == from_indices(a & b)
    assert common.indices().tolist() == sorted(a & b)


@given(index_sets, index_sets)
def test_locate_gives_local_positions(whole: set[int], other: set[int]) -> None:
    outer, inner = from_indices(whole), from_indices(whole & other)
    local = outer.locate(inner)
    assert outer.indices()[local.selector()].tolist() == inner.indices().tolist()
    assert local.size == inner.size


@given(index_sets, st.data())
def test_part_is_by_position(members: set[int], data: st.DataObject) -> None:
    indices = from_indices(members)
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(members))] * 2)))
    assert indices.select(first, last).indices().tolist() == sorted(members)[first:last]


@given(index_sets, index_sets)
def test_locate_refuses_what_is_not_inside(whole: set[int], other: set[int]) -> None:
    if not other <= whole:
        with pytest.raises(LayoutError, match="subset"):
            from_indices(whole).locate(from_indices(other))


def test_a_long_cyclic_set_stays_small() -> None:
    dealt = IndexSet.regular(3, 10**12, 2, 7)
    assert dealt.size == 2 * ((10**12 - 3 + 6) // 7) - (1 if (10**12 - 3) % 7 == 1 else 0)
    part = dealt.intersect(IndexSet.range(10**11, 10**11 + 10**6))
    assert part.size in range(2 * 10**6 // 7 - 2, 2 * 10**6 // 7 + 3)
    strided = IndexSet.regular(1, 10**12, 1, 4)
    assert strided.locate(strided.intersect(IndexSet.range(10**11, 10**12))) == IndexSet.range(
        25 * 10**9, 25 * 10**10
    )


def test_segments_must_ascend() -> None:
    with pytest.raises(LayoutError, match="ascending"):
        IndexSet.from_segments([0, 2], [3, 5])


def test_does_not_hold_on_to_the_arrays_it_was_given() -> None:
    starts, stops = np.array([0, 5, 11]), np.array([2, 6, 20])
    indices = IndexSet.from_segments(starts, stops)
    stops[:] = 0
    assert indices.indices().tolist() == [0, 1, 5, *range(11, 20)]
    with pytest.raises(ValueError, match="read-only"):
        indices.segments()[0][0] = 1


def test_tile_shape() -> None:
    assert tile_shape((IndexSet.range(2, 5), IndexSet.regular(0, 10, 1, 3))) == (3, 4)
    assert tile_shape(()) == ()
