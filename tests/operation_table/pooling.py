"""Pooling."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from operation_table.dice import REAL, Case, Dice, Row, Shape


def _windows(dice: Dice) -> tuple[Shape, Shape, dict[str, Any]]:
    """Shapes of the operand and of the windows, and how they go together."""
    lead = tuple(dice.draw(st.integers(1, 2)) for _ in range(dice.draw(st.integers(0, 3))))
    kernel = [dice.draw(st.integers(1, 3)) for _ in range(dice.draw(st.sampled_from([1, 2, 2, 3])))]
    if not dice.smooth and dice.draw(st.integers(0, 5)) == 0:
        kernel.append(2)
    stride, dilation = ([dice.draw(st.integers(1, 3)) for _ in kernel] for _ in range(2))
    if dice.draw(st.booleans()):
        dilation = [1] * len(kernel)
    padding = [(dice.draw(st.integers(0, 2)), dice.draw(st.integers(0, 2))) for _ in kernel]
    if dice.draw(st.booleans()):
        padding = [(n // 2, n // 2) for n in kernel]
    if dice.smooth:  # every window has elements: the maximum of none is infinite
        dilation = [1] * len(kernel)
        padding = [
            (min(a, k - 1), min(b, k - 1)) for (a, b), k in zip(padding, kernel, strict=True)
        ]
    x, y = [], []
    for d, k in enumerate(kernel):
        reach = dilation[d] * (k - 1) + 1
        n = max(1, reach - sum(padding[d])) + dice.draw(st.integers(0, 2 if dice.smooth else 5))
        x.append(n)
        y.append((n + sum(padding[d]) - reach) // stride[d] + 1)
    attributes = {
        "kernel": tuple(kernel),
        "stride": tuple(stride),
        "padding": tuple(padding),
        "dilation": tuple(dilation),
    }
    return (*lead, *x), (*lead, *y), attributes


def _pool(dice: Dice) -> Case:
    x, _, attributes = _windows(dice)
    return Case((dice.numbers(x, "count"),), attributes)


def _select(dice: Dice) -> Case:
    x, _, attributes = _windows(dice)
    return Case((dice.numbers(x, "count"), dice.numbers(x, "count")), attributes)


def _scatter(dice: Dice) -> Case:
    x, y, attributes = _windows(dice)
    return Case((dice.numbers(y, "count"), dice.numbers(x, "count")), attributes)


def _sum_input(dice: Dice) -> Case:
    x, y, attributes = _windows(dice)
    space = x[len(x) - len(attributes["kernel"]) :]
    return Case((dice.numbers(y, "count"),), {**attributes, "space": space})


ROWS: dict[str, Row] = {
    "max_pool": Row(_pool, REAL, (0,)),
    "max_pool_select": Row(_select, REAL, (0,)),
    "max_pool_scatter": Row(_scatter, REAL, (0,)),
    "sum_pool": Row(_pool, REAL, (0,)),
    "sum_pool_input": Row(_sum_input, REAL, (0,)),
}
