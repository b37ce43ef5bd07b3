"""Reductions and cumulative functions, of whole axes and of their segments."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st

from magmath.core.dtypes import uint8
from magmath.ops.cumulative import long_sum_dtype
from operation_table.draws import ANY, BOOL, COMPLEX, NUMERIC, REAL, Case, Draw, Draws, Row, Shape


def _reduction(domain: str, *, empty: bool = True, extents: tuple[int, int] = (0, 6)) -> Draw:
    def draw(draws: Draws) -> Case:
        low, high = extents
        shape = draws.shape(extents=(low if empty else max(low, 1), high))
        attributes = {"axis": draws.axes(len(shape)), "keepdims": draws.draw(st.booleans())}
        return Case((draws.numbers(shape, domain),), attributes)

    return draw


def _position_of(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 6))
    axis = draws.draw(st.integers(0, len(shape) - 1))
    attributes = {"axis": axis, "keepdims": draws.draw(st.booleans())}
    return Case((draws.numbers(shape),), attributes)


def _running(domain: str) -> Draw:
    def draw(draws: Draws) -> Case:
        shape = draws.shape(1)
        axis = draws.draw(st.integers(0, len(shape) - 1))
        return Case((draws.numbers(shape, domain),), {"axis": axis})

    return draw


def _begun_segments(domain: str) -> Draw:
    def draw(draws: Draws) -> Case:
        shape = draws.shape(1, extents=(1, 6))
        axis = draws.draw(st.integers(0, len(shape) - 1))
        starts = draws.draw(st.sets(st.integers(0, shape[axis] - 1), min_size=1))
        return Case((draws.numbers(shape, domain), torch.tensor(sorted(starts))), {"axis": axis})

    return draw


def _segments(draws: Draws) -> tuple[Shape, dict[str, Any]]:
    """A shape, and segments of one of its axes."""
    shape = draws.shape(1, extents=(1, 6))
    axis = draws.draw(st.integers(0, len(shape) - 1))
    inner = draws.draw(st.sets(st.integers(0, shape[axis]), max_size=4))
    return shape, {"axis": axis, "cuts": tuple(sorted({0, shape[axis], *inner}))}


def _segment_positions(draws: Draws) -> Case:
    shape, attributes = _segments(draws)
    name = draws.draw(st.sampled_from(["argmax", "argmin"]))
    return Case((draws.numbers(shape),), {**attributes, "name": name})


def _segment_elements(draws: Draws) -> Case:
    shape, attributes = _segments(draws)
    axis = attributes["axis"]
    ends = [draws.random.integers(a, b) for a, b in pairwise(attributes["cuts"])]
    places = torch.tensor(ends).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    indices = places.expand(*shape[:axis], len(ends), *shape[axis + 1 :]).contiguous()
    return Case((draws.numbers(shape), indices), attributes)


def _segment_totals(draws: Draws) -> Case:
    shape, attributes = _segments(draws)
    name = draws.draw(st.sampled_from(_names(draws)))
    return Case((draws.numbers(shape, "count"),), {**attributes, "name": name})


def _names(draws: Draws) -> list[str]:
    """The names of the cumulative functions that take the drawn type by segments."""
    is_ordered = draws.dtype.kind in ("int", "float") or draws.dtype is uint8
    return ["sum", "prod", *(["max", "min"] if is_ordered else [])]


def _segment_cumulative(draws: Draws) -> Case:
    (x,), attributes = (case := _segment_totals(draws)).operands, case.attributes
    axis, count = attributes["axis"], len(attributes["cuts"]) - 1
    is_extremum = attributes["name"] in ("max", "min")
    wide = draws if is_extremum else replace(draws, dtype=long_sum_dtype(draws.dtype))
    totals = wide.numbers((*x.shape[:axis], count, *x.shape[axis + 1 :]), "count")
    return Case((x, totals), attributes)


_FULL_REAL = tuple(name for name in REAL if name not in ("float16", "bfloat16"))
_FULL = (*_FULL_REAL, *COMPLEX)

ROWS: dict[str, Row] = {
    "sum": Row(_reduction("count"), ANY, (0,)),
    "prod": Row(_reduction("factor", extents=(0, 3)), NUMERIC, (0,)),
    "max": Row(_reduction("any", empty=False), REAL, (0,)),
    "min": Row(_reduction("any", empty=False), REAL, (0,)),
    "any": Row(_reduction("any"), BOOL),
    "all": Row(_reduction("any"), BOOL),
    "argmax": Row(_position_of, REAL),
    "argmin": Row(_position_of, REAL),
    "segment_positions": Row(_segment_positions, REAL),
    "segment_elements": Row(_segment_elements, REAL),
    "segment_totals": Row(_segment_totals, NUMERIC),
    "segment_cumulative": Row(_segment_cumulative, NUMERIC),
    "cumulative_sum": Row(_running("count"), NUMERIC, (0,)),
    "cumulative_prod": Row(_running("factor"), NUMERIC, (0,)),
    **dict.fromkeys(["segment_sum", "segment_prod"], Row(_begun_segments("count"), _FULL, (0,))),
    **dict.fromkeys(["segment_max", "segment_min"], Row(_begun_segments("any"), _FULL_REAL, (0,))),
    **dict.fromkeys(["segment_any", "segment_all"], Row(_begun_segments("any"), BOOL)),
    "cumulative_max": Row(_running("any"), (*BOOL, *REAL), (0,)),
    "cumulative_min": Row(_running("any"), (*BOOL, *REAL), (0,)),
}
