"""Strategies that are made once: to make one, and have Hypothesis check it, takes ten times as long
as to draw from it. What only serves another strategy is better a plain function that is given
`draw`, for the same reason."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

from hypothesis import strategies as st


@cache
def kept(make: Callable[..., Any], *arguments: Hashable) -> st.SearchStrategy[Any]:
    """`make(*arguments)`, the same one whenever it is asked for."""
    return make(*arguments)


def lists(low: int, high: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    """Lists of `least` to `most` whole numbers from `low` to `high`."""
    return st.lists(st.integers(low, high), min_size=least, max_size=most)
