"""Pooling."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from operation_table.draws import REAL, Case, Draws, Row, Shape


def _windows(draws: Draws) -> tuple[Shape, Shape, dict[str, Any]]:
    """Shapes of the operand and of the windows, that fit each other."""
    lead = tuple(draws.draw(st.integers(1, 2)) for _ in range(draws.draw(st.integers(0, 3))))
    kernel = [
        draws.draw(st.integers(1, 3)) for _ in range(draws.draw(st.sampled_from([1, 2, 2, 3])))
    ]
    if not draws.smooth and draws.draw(st.integers(0, 5)) == 0:
        kernel.append(2)
    stride, dilation = ([draws.draw(st.integers(1, 3)) for _ in kernel] for _ in range(2))
    if draws.draw(st.booleans()):
        dilation = [1] * len(kernel)
    padding = [(draws.draw(st.integers(0, 2)), draws.draw(st.integers(0, 2))) for _ in kernel]
    if draws.draw(st.booleans()):
        padding = [(n // 2, n // 2) for n in kernel]
    if draws.smooth:  # every window has elements: the maximum of none is infinite
        dilation = [1] * len(kernel)
        padding = [
            (min(a, k - 1), min(b, k - 1)) for (a, b), k in zip(padding, kernel, strict=True)
        ]
    x, y = [], []
    for d, k in enumerate(kernel):
        reach = dilation[d] * (k - 1) + 1
        n = max(1, reach - sum(padding[d])) + draws.draw(st.integers(0, 2 if draws.smooth else 5))
        x.append(n)
        y.append((n + sum(padding[d]) - reach) // stride[d] + 1)
    attributes = {
        "kernel": tuple(kernel),
        "stride": tuple(stride),
        "padding": tuple(padding),
        "dilation": tuple(dilation),
    }
    return (*lead, *x), (*lead, *y), attributes


def _pool(draws: Draws) -> Case:
    x, _, attributes = _windows(draws)
    return Case((draws.numbers(x, "count"),), attributes)


def _select(draws: Draws) -> Case:
    x, _, attributes = _windows(draws)
    return Case((draws.numbers(x, "count"), draws.numbers(x, "count")), attributes)


def _scatter(draws: Draws) -> Case:
    x, y, attributes = _windows(draws)
    return Case((draws.numbers(y, "count"), draws.numbers(x, "count")), attributes)


def _sum_input(draws: Draws) -> Case:
    x, y, attributes = _windows(draws)
    space = x[len(x) - len(attributes["kernel"]) :]
    return Case((draws.numbers(y, "count"),), {**attributes, "space": space})


ROWS: dict[str, Row] = {
    "max_pool": Row(_pool, REAL, (0,)),
    "max_pool_select": Row(_select, REAL, (0,)),
    "max_pool_scatter": Row(_scatter, REAL, (0,)),
    "sum_pool": Row(_pool, REAL, (0,)),
    "sum_pool_input": Row(_sum_input, REAL, (0,)),
}
