"""Products and convolutions."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES
from operation_table.dice import NUMERIC, Case, Dice, Row, Shape

SUBSCRIPTS = ("ab,bc->ac", "abc,acd->abd", "abc,cdb->da", "ab,ab->", "ab,b->a", "a,ab->b",
              "ab,abc->c", "abc,bcd->dab", "bca,acd->dba")  # fmt: skip


def _contract(dice: Dice) -> Case:
    """A dimension in both operands and the result may be stretched in one."""
    subscripts = dice.draw(st.sampled_from(SUBSCRIPTS))
    operands, out = subscripts.split("->")
    a, b = operands.split(",")
    extents = {c: dice.draw(st.integers(1 if dice.smooth else 0, 6)) for c in {*a, *b}}
    shapes = [[extents[c] for c in letters] for letters in (a, b)]
    for d, c in enumerate(a):
        if c in b and c in out and dice.draw(st.integers(0, 2)) == 0:
            shapes[0][d] = 1
    pair = [dice.numbers(tuple(shape), "count") for shape in shapes]
    halves = ("float16", "bfloat16")
    widened = dice.dtype.name in halves and dice.draw(st.booleans())
    dtype = DTYPES["float32"] if widened else dice.dtype
    return Case(tuple(pair), {"subscripts": subscripts, "dtype": dtype})


def _gemm(dice: Dice) -> Case:
    m, k, n = (dice.draw(st.integers(0, 6)) for _ in range(3))
    flip_a, flip_b = dice.draw(st.booleans()), dice.draw(st.booleans())
    operands = [
        dice.numbers((k, m) if flip_a else (m, k), "count"),
        dice.numbers((n, k) if flip_b else (k, n), "count"),
    ]
    forms = ["plain", "bias", "accumulate", "relu", "both"]
    form = dice.draw(st.sampled_from(forms[:3] if dice.dtype.kind == "complex" else forms))
    if form in ("bias", "both"):
        operands.append(dice.numbers((n,), "count"))
    if form == "accumulate":
        operands += [dice.numbers((m, n), "count"), dice.numbers((), "count")]
    attributes = {
        "transpose_a": flip_a,
        "transpose_b": flip_b,
        "bias": form in ("bias", "both"),
        "activation": "relu" if form in ("relu", "both") else "none",
        "accumulate": form == "accumulate",
        "dtype": dice.dtype,
    }
    return Case(tuple(operands), attributes)


def _related_by_correlation(dice: Dice) -> tuple[Shape, Shape, Shape, dict[str, Any]]:
    """Shapes of x, w and y, and their relation."""
    space = dice.draw(st.integers(1, 2 if dice.smooth else 4))
    few = 2 if dice.smooth else 3
    groups, outputs, channels, batch = (dice.draw(st.integers(1, few)) for _ in range(4))
    channels = dice.draw(st.sampled_from([1, channels]))
    kernel = [dice.draw(st.integers(1, 3)) for _ in range(space)]
    stride, dilation = ([dice.draw(st.integers(1, 2)) for _ in kernel] for _ in range(2))
    padding = [(dice.draw(st.integers(0, 2)), dice.draw(st.integers(0, 2))) for _ in kernel]
    y = [dice.draw(st.integers(1, 3 if dice.smooth or space > 2 else 7)) for _ in kernel]
    x = []
    for d, n in enumerate(y):
        least = (n - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 - sum(padding[d])
        x.append(max(0, least) + (dice.draw(st.integers(0, stride[d] - 1)) if least > 0 else 0))
        y[d] = (
            n
            if least >= 0
            else (sum(padding[d]) - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        )
    attributes = {
        "stride": tuple(stride),
        "padding": tuple(padding),
        "dilation": tuple(dilation),
        "groups": groups,
    }
    shapes = (batch, channels * groups, *x), (outputs * groups, channels, *kernel)
    return *shapes, (batch, outputs * groups, *y), attributes


def _correlation(dice: Dice) -> Case:
    x, w, _, attributes = _related_by_correlation(dice)
    operands = dice.numbers(x, "count"), dice.numbers(w, "count")
    return Case(operands, {**attributes, "direct": dice.draw(st.booleans())})


def _correlation_input(dice: Dice) -> Case:
    x, w, y, attributes = _related_by_correlation(dice)
    operands = dice.numbers(y, "count"), dice.numbers(w, "count")
    return Case(operands, {**attributes, "space": x[2:]})


def _correlation_kernel(dice: Dice) -> Case:
    x, w, y, attributes = _related_by_correlation(dice)
    operands = dice.numbers(x, "count"), dice.numbers(y, "count")
    return Case(operands, {**attributes, "kernel": w[2:]})


ROWS: dict[str, Row] = {
    "contract": Row(_contract, NUMERIC, (0, 1)),
    "correlation": Row(_correlation, NUMERIC, (0, 1)),
    "correlation_input": Row(_correlation_input, NUMERIC, (0, 1)),
    "correlation_kernel": Row(_correlation_kernel, NUMERIC, (0, 1)),
}

FOLDED = {"gemm": Row(_gemm, NUMERIC)}
