"""Matrix products: `matmul` as users write it, and `gemm` as the passes shape it.

`gemm` is matmul with everything folded in that a BLAS call can do: transposed operands, a bias
row, an activation, and accumulation onto a third operand (`c + alpha·a·b`, the weight update).
Users never write it; `passes/simplify.py` and `passes/fuse.py` make it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.core.dtypes import DType
from magmath.core.shapes import broadcast
from magmath.errors import DTypeError, ShapeError
from magmath.graph import LocalCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.ops.manipulation import transpose
from magmath.ops.native_emit import NativeCall, Operand, Writer, literal
from magmath.ops.reductions import sum_to
from magmath.ops.rules import LETTERS, check_kind


def _matmul_infer(a: Node, b: Node) -> tuple[Shape, DType]:
    check_kind("matmul", "numeric", a.dtype)
    if a.dtype != b.dtype:
        raise DTypeError(f"matmul: operands have types {a.dtype} and {b.dtype}")
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"matmul: needs (…, m, k) @ (…, k, n), was given {a.shape} @ {b.shape}"
            + (f": {a.shape[-1]} is not {b.shape[-2]}" if a.ndim > 1 < b.ndim else "")
        )
    batch = broadcast("matmul", a.shape[:-2], b.shape[:-2])
    return (*batch, a.shape[-2], b.shape[-1]), a.dtype


def _batch_letters(shape: Shape, result: Shape) -> str:
    offset = len(result) - len(shape)
    return "".join(
        LETTERS[offset + d] if extent == result[offset + d] else "."
        for d, extent in enumerate(shape)
    )


def _matmul_axes(node: Node) -> str:
    a, b = node.inputs
    batch = node.shape[:-2]
    m, n, k = LETTERS[len(batch)], LETTERS[len(batch) + 1], LETTERS[len(batch) + 2]
    left, right = _batch_letters(a.shape[:-2], batch), _batch_letters(b.shape[:-2], batch)
    return f"{left}{m}{k},{right}{k}{n}->{LETTERS[: len(batch)]}{m}{n}"


def _matmul_vjp(node: Node, g: Node) -> Gradients:
    a, b = node.inputs
    return (
        sum_to(matmul(g, transpose(b)), a.shape),
        sum_to(matmul(transpose(a), g), b.shape),
    )


def _product_flops(node: Node) -> float:
    a = node.inputs[0]
    k = a.shape[-2] if node.attributes.get("transpose_a") else a.shape[-1]
    return 2.0 * node.size * k


def _product_efficiency(shape: Shape) -> float:
    """Narrow results fill the processor's registers badly: half speed at 16 rows or columns."""
    rows, columns = shape[-2:]
    return (rows / (rows + 16.0)) * (columns / (columns + 16.0)) if rows and columns else 1.0


def _matmul_kernel(call: LocalCall) -> Callable[[], object]:
    a, b = call.inputs
    return call.context.gemm(call.out, a, b)


MATMUL = Operation(
    name="matmul",
    infer=_matmul_infer,
    axes=_matmul_axes,
    reduction="sum",
    vjp=_matmul_vjp,
    kernel=_matmul_kernel,
    native=None,
    reference=np.matmul,
    flops=_product_flops,
    efficiency=_product_efficiency,
)


def matmul(a: Node, b: Node) -> Node:
    """The matrix product of (…, m, k) and (…, k, n)."""
    return apply(MATMUL, a, b)


# gemm ---------------------------------------------------------------------------------------
# operands: a, b, then the bias row if `bias`, then c and alpha if `accumulate`


def _gemm_infer(
    a: Node,
    b: Node,
    *rest: Node,
    transpose_a: bool,
    transpose_b: bool,
    bias: bool,
    activation: str,
    accumulate: bool,
) -> tuple[Shape, DType]:
    m, k = a.shape[::-1] if transpose_a else a.shape
    k2, n = b.shape[::-1] if transpose_b else b.shape
    if k != k2 or a.dtype != b.dtype or len(rest) != bias + 2 * accumulate:
        raise ShapeError(f"gemm: operands {a}, {b} and {rest} do not fit")
    return (m, n), a.dtype


def _gemm_axes(node: Node) -> str:
    attributes = node.attributes
    folded = attributes["bias"] or attributes["accumulate"] or attributes["activation"] != "none"
    k = "." if folded else "k"  # what is folded in must not happen to each part of a sum
    operands = [f"{k}m" if attributes["transpose_a"] else f"m{k}"]
    operands.append(f"n{k}" if attributes["transpose_b"] else f"{k}n")
    if attributes["bias"]:
        operands.append("n")
    if attributes["accumulate"]:
        operands += ["mn", ""]
    return f"{','.join(operands)}->mn"


def _no_vjp(node: Node, g: Node) -> Gradients:
    raise AssertionError("gemm is made by the passes, after gradients")


def _gemm_kernel(call: LocalCall) -> Callable[[], object]:
    attributes, (a, b, *rest) = call.attributes, call.inputs
    a = a.T if attributes["transpose_a"] else a
    b = b.T if attributes["transpose_b"] else b
    bias = rest[0] if attributes["bias"] else None
    if not attributes["accumulate"]:
        return call.context.gemm(call.out, a, b, bias=bias, activation=attributes["activation"])
    c, alpha = rest[-2:]
    run = call.context.gemm(call.out, a, b, alpha=alpha, accumulate=True)
    out = call.out
    if c.data_ptr() == out.data_ptr() and c.stride() == out.stride():
        return run

    def copy_and_run() -> None:
        out.copy_(c)
        run()

    return copy_and_run


def _gemm_reference(
    a: Any,
    b: Any,
    *rest: Any,
    transpose_a: bool,
    transpose_b: bool,
    bias: bool,
    activation: str,
    accumulate: bool,
) -> Any:
    product = (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    if bias:
        product = product + rest[0]
    if activation == "relu":
        product = np.maximum(product, 0)
    return rest[-2] + rest[-1] * product if accumulate else product


def _leading(x: Operand) -> str | None:
    """The leading dimension of a row-major matrix, None if its rows are not contiguous."""
    if x.shape[1] > 1 and x.strides[1] != 1:
        return None
    return str(max(x.strides[0] if x.shape[0] > 1 else x.shape[1], x.shape[1], 1))


def emit_gemm(w: Writer, call: NativeCall) -> bool:
    """Write a BLAS call and, in a loop, what BLAS cannot do (bias, activation).

    Returns False where an operand's rows are not contiguous: the program is then replayed.
    """
    attributes, (a, b, *rest), out = call.attributes, call.inputs, call.out
    transpose_a = bool(attributes.get("transpose_a"))
    transpose_b = bool(attributes.get("transpose_b"))
    leading = [_leading(x) for x in (a, b, out)]
    if len(out.shape) != 2 or None in leading or out.dtype.name not in ("float32", "float64"):
        return False
    m, n = out.shape
    k = a.shape[0] if transpose_a else a.shape[1]
    one, zero = literal(1, out.dtype), literal(0, out.dtype)
    accumulate = bool(attributes.get("accumulate"))
    alpha = rest[-1].at([]) if accumulate else one
    if accumulate and rest[-2].name != out.name:
        with w.loops(out.shape) as indices:
            w.line(f"{out.at(indices)} = {rest[-2].at(indices)}")
    w.line(
        f"gemm({transpose_a}, {transpose_b}, {m}, {n}, {k}, {alpha}, {a.name}, {leading[0]}, "
        f"{b.name}, {leading[1]}, {one if accumulate else zero}, {out.name}, {leading[2]})"
    )
    _emit_epilogue(w, out, rest[0] if attributes.get("bias") else None, attributes)
    return True


def _emit_epilogue(w: Writer, out: Operand, bias: Operand | None, attributes: Any) -> None:
    relu = attributes.get("activation") == "relu"
    if bias is None and not relu:
        return
    with w.loops(out.shape) as indices:
        value = w.name("v")
        addend = f" + {bias.at(indices)}" if bias is not None else ""
        w.line(f"{value} = {out.at(indices)}{addend}")
        if relu:
            zero = literal(0, out.dtype)
            w.line(f"{value} = {zero} if {value} <= {zero} else {value}")
        w.line(f"{out.at(indices)} = {value}")


GEMM = Operation(
    name="gemm",
    infer=_gemm_infer,
    axes=_gemm_axes,
    reduction="sum",
    vjp=_no_vjp,
    kernel=_gemm_kernel,
    native=emit_gemm,
    reference=_gemm_reference,
    flops=_product_flops,
    efficiency=_product_efficiency,
)


def gemm(
    a: Node,
    b: Node,
    *rest: Node,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: bool = False,
    activation: str = "none",
    accumulate: bool = False,
) -> Node:
    """A 2-D product with transposes, bias row, activation or accumulation folded in."""
    return apply(
        GEMM,
        a,
        b,
        *rest,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        bias=bias,
        activation=activation,
        accumulate=accumulate,
    )


OPERATIONS = {"matmul": MATMUL, "gemm": GEMM}
