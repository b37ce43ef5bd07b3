"""Hypothesis strategies that are constructed once per set of arguments.

Construction and validation of a strategy take ten times as long as a draw from it. For the same
reason, a helper of another strategy is a plain function that receives `draw`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

from hypothesis import strategies as st


@cache
def cached(make: Callable[..., Any], *arguments: Hashable) -> st.SearchStrategy[Any]:
    """Return `make(*arguments)`, one object for equal arguments."""
    return make(*arguments)


def lists(low: int, high: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    """Return a strategy for lists of `least` to `most` integers from `low` to `high`."""
    return st.lists(st.integers(low, high), min_size=least, max_size=most)
