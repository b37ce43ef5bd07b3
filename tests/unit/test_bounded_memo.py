"""Bounded memos never exceed their bound, and drop the least recently used entry."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.core.bounded_memo import RecentlyUsed, store_bounded


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9))), st.integers(1, 5))
def test_the_most_recently_used_entries_remain(uses: list[tuple[bool, int]], most: int) -> None:
    memo: RecentlyUsed[int, str] = RecentlyUsed(most)
    recent: list[int] = []
    for stores, key in uses:
        known = key in recent
        if known or stores:
            recent = [*(k for k in recent if k != key), key]
        if stores:
            dropped = memo.store(key, str(key))
            expected = recent.pop(0) if len(recent) > most else None
            assert dropped == expected
        else:
            assert memo.find(key) == (str(key) if known else None)
        assert list(memo) == recent
        assert memo.newest == (str(recent[-1]) if recent else None)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 9)), st.integers(0, 30), st.integers(0, 3))
def test_the_oldest_entries_beyond_a_size_are_dropped(
    sizes: list[int], most: int, number: int
) -> None:
    memo: RecentlyUsed[int, int] = RecentlyUsed()
    for key, size in enumerate(sizes):
        memo.store(key, size)
    dropped = memo.drop_while(lambda n, total: total > most and n > number, lambda size: size)
    assert [*dropped, *memo.items()] == [*enumerate(sizes)]
    remaining = [*memo.values()]
    assert sum(remaining) <= most or len(remaining) <= number
    if dropped:
        assert sum(remaining) + dropped[-1][1] > most
        assert len(remaining) >= number


def test_a_full_plain_memo_is_cleared() -> None:
    known: dict[int, int] = {}
    for i in range(10):
        assert store_bounded(known, i, i * i, 4) == i * i
        assert len(known) <= 4
        assert known[i] == i * i
