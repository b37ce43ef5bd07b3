"""Products and convolutions."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES
from operation_table.draws import NUMERIC, Case, Draws, Row, Shape

SUBSCRIPTS = ("ab,bc->ac", "abc,acd->abd", "abc,cdb->da", "ab,ab->", "ab,b->a", "a,ab->b",
              "ab,abc->c", "abc,bcd->dab", "bca,acd->dba")  # fmt: skip


def _contract(draws: Draws) -> Case:
    """A dimension in both operands and the result may be stretched in one."""
    subscripts = draws.draw(st.sampled_from(SUBSCRIPTS))
    operands, out = subscripts.split("->")
    a, b = operands.split(",")
    extents = {c: draws.draw(st.integers(1 if draws.smooth else 0, 6)) for c in {*a, *b}}
    shapes = [[extents[c] for c in letters] for letters in (a, b)]
    for d, c in enumerate(a):
        if c in b and c in out and draws.draw(st.integers(0, 2)) == 0:
            shapes[0][d] = 1
    pair = [draws.numbers(tuple(shape), "count") for shape in shapes]
    halves = ("float16", "bfloat16")
    widened = draws.dtype.name in halves and draws.draw(st.booleans())
    dtype = DTYPES["float32"] if widened else draws.dtype
    return Case(tuple(pair), {"subscripts": subscripts, "dtype": dtype})


def _gemm(draws: Draws) -> Case:
    m, k, n = (draws.draw(st.integers(0, 6)) for _ in range(3))
    flip_a, flip_b = draws.draw(st.booleans()), draws.draw(st.booleans())
    operands = [
        draws.numbers((k, m) if flip_a else (m, k), "count"),
        draws.numbers((n, k) if flip_b else (k, n), "count"),
    ]
    forms = ["plain", "bias", "accumulate", "relu", "both"]
    form = draws.draw(st.sampled_from(forms[:3] if draws.dtype.kind == "complex" else forms))
    if form in ("bias", "both"):
        operands.append(draws.numbers((n,), "count"))
    if form == "accumulate":
        operands += [draws.numbers((m, n), "count"), draws.numbers((), "count")]
    attributes = {
        "transpose_a": flip_a,
        "transpose_b": flip_b,
        "bias": form in ("bias", "both"),
        "activation": "relu" if form in ("relu", "both") else "none",
        "accumulate": form == "accumulate",
        "dtype": draws.dtype,
    }
    return Case(tuple(operands), attributes)


def _related_by_correlation(draws: Draws) -> tuple[Shape, Shape, Shape, dict[str, Any]]:
    """Shapes of x, w and y, and their relation."""
    space = draws.draw(st.integers(1, 2 if draws.smooth else 4))
    few = 2 if draws.smooth else 3
    groups, outputs, channels, batch = (draws.draw(st.integers(1, few)) for _ in range(4))
    channels = draws.draw(st.sampled_from([1, channels]))
    kernel = [draws.draw(st.integers(1, 3)) for _ in range(space)]
    stride, dilation = ([draws.draw(st.integers(1, 2)) for _ in kernel] for _ in range(2))
    padding = [(draws.draw(st.integers(0, 2)), draws.draw(st.integers(0, 2))) for _ in kernel]
    y = [draws.draw(st.integers(1, 3 if draws.smooth or space > 2 else 7)) for _ in kernel]
    x = []
    for d, n in enumerate(y):
        least = (n - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 - sum(padding[d])
        x.append(max(0, least) + (draws.draw(st.integers(0, stride[d] - 1)) if least > 0 else 0))
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
        "transforms": draws.draw(st.sampled_from(["none", "tiles", "arrays"])),
    }
    shapes = (batch, channels * groups, *x), (outputs * groups, channels, *kernel)
    return *shapes, (batch, outputs * groups, *y), attributes


def _correlation(draws: Draws) -> Case:
    x, w, y, attributes = _related_by_correlation(draws)
    operands = [draws.numbers(x, "count"), draws.numbers(w, "count")]
    can_fold = draws.dtype.is_floating and not draws.smooth
    bias, residual, relu = (can_fold and draws.draw(st.booleans()) for _ in range(3))
    if bias:
        operands.append(draws.numbers((1, y[1], *[1 for _ in y[2:]]), "count"))
    if residual:
        operands.append(draws.numbers(y, "count"))
    if bias or residual or relu:  # an epilogue, which passes fold into the sum of placed programs
        activation = "relu" if relu else "none"
        attributes |= {"bias": bias, "residual": residual, "activation": activation}
        if attributes["transforms"] == "arrays":  # which are expanded before they are folded
            attributes["transforms"] = "tiles"
    return Case(tuple(operands), attributes)


def _correlation_input(draws: Draws) -> Case:
    x, w, y, attributes = _related_by_correlation(draws)
    operands = draws.numbers(y, "count"), draws.numbers(w, "count")
    return Case(operands, {**attributes, "space": x[2:]})


def _correlation_kernel(draws: Draws) -> Case:
    x, w, y, attributes = _related_by_correlation(draws)
    operands = draws.numbers(x, "count"), draws.numbers(y, "count")
    return Case(operands, {**attributes, "kernel": w[2:]})


ROWS: dict[str, Row] = {
    "contract": Row(_contract, NUMERIC, (0, 1)),
    "correlation": Row(_correlation, NUMERIC, (0, 1)),
    "correlation_input": Row(_correlation_input, NUMERIC, (0, 1)),
    "correlation_kernel": Row(_correlation_kernel, NUMERIC, (0, 1)),
}

FOLDED = {"gemm": Row(_gemm, NUMERIC)}
