"""`gemm`: the product of two matrices, with its epilogue, as the passes build it.

It is a contraction with transposed operands, a bias row, an activation, or accumulation onto a
third operand (`c + alpha·a·b`, the weight update) folded in. User code never builds it;
`passes/simplify.py` and `passes/fold_epilogues.py` do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.codegen.emit import NativeCall, NativeOperand, Writer, literal
from magmath.core.call_sequence import sequence
from magmath.core.dtypes import DType
from magmath.core.type_aliases import BoundCall
from magmath.errors import ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.ops.product.panel_products import in_panels
from magmath.ops.shared_fields import vjp_after_gradients

if TYPE_CHECKING:
    import torch

MAX_NUMPY_OPERAND = 1 << 18
MAX_NUMPY_FLOPS = 1 << 24
"""Elements of an operand, and arithmetic operations, up to which NumPy's product is faster than to
bind a kernel."""
MAX_NUMPY_INTEGER_FLOPS = 1 << 20
"""The same for integers, of which NumPy has no fast products of matrices."""
# Multiplications up to which `kernels/gemm/packed_gemm.py` is faster (docs/benchmarks.md).
MAX_TILED_MULTIPLICATIONS = 6e8


def _gemm_infer(
    a: Node,
    b: Node,
    *epilogue_inputs: Node,
    transpose_a: bool,
    transpose_b: bool,
    bias: bool,
    activation: str,
    accumulate: bool,
    dtype: DType,
) -> tuple[Shape, DType]:
    """Return the shape and type. The `epilogue_inputs` are the row of a `bias`, then c and alpha if
    the product is accumulated."""
    m, k = a.shape[::-1] if transpose_a else a.shape
    k2, n = b.shape[::-1] if transpose_b else b.shape
    if k != k2 or a.dtype != b.dtype or len(epilogue_inputs) != bias + 2 * accumulate:
        raise ShapeError(f"gemm: operands {a}, {b} and {epilogue_inputs} do not fit")
    return (m, n), dtype


def _gemm_axes(node: Node) -> str:
    attributes = node.attributes
    folded = attributes["bias"] or attributes["accumulate"] or attributes["activation"] != "none"
    k = "." if folded else "k"  # an epilogue must not apply to each partial sum
    operands = [f"{k}m" if attributes["transpose_a"] else f"m{k}"]
    operands.append(f"n{k}" if attributes["transpose_b"] else f"{k}n")
    if attributes["bias"]:
        operands.append("n")
    if attributes["accumulate"]:
        operands += ["mn", ""]
    return f"{','.join(operands)}->mn"


def _gemm_flops(node: Node) -> float:
    a = node.inputs[0]
    return 2.0 * node.size * a.shape[-2 if node.attributes["transpose_a"] else -1]


def product_efficiency(rows: int, columns: int) -> float:
    """Return the share of full speed that a product of this local shape reaches.

    Narrow results use the vector registers badly: half speed at 16 rows or columns.
    """
    return (rows / (rows + 16.0)) * (columns / (columns + 16.0)) if rows and columns else 1.0


def bind_product(
    call: KernelCall, out: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **options: Any
) -> BoundCall:
    """Return a bound call of a product of local tensors; `options` as for `bind_gemm`."""
    from magmath.kernels.gemm.deterministic_gemm import bind_deterministic
    from magmath.kernels.gemm.gemm import bind_gemm, tuner_for

    deterministic = call.context.deterministic
    bind = bind_deterministic if deterministic else bind_gemm
    return bind(out, a, b, tuner=tuner_for(deterministic), **options)


def _bind_accumulation(
    call: KernelCall, a: torch.Tensor, b: torch.Tensor, alpha: torch.Tensor
) -> BoundCall:
    """Return a bound call of out += alpha·a·b.

    The product is computed on its own on a GPU, where the host does not wait for the number, and if
    alpha is 0: then BLAS would not read the operands, which may contain infinity or NaN.
    """
    import torch

    out = call.out

    def bound_alone() -> BoundCall:
        product = torch.empty_like(out)
        return sequence(bind_product(call, product, a, b), lambda: out.addcmul_(product, alpha))

    if alpha.is_cuda:
        return bound_alone()
    accumulate = bind_product(call, out, a, b, alpha=alpha.item, beta=1.0)
    if not (out.is_floating_point() or out.is_complex()):
        return accumulate
    return lambda: accumulate() if alpha.item() else bound_alone()()


def _gemm_kernel(call: KernelCall) -> BoundCall:
    attributes, (a, b, *epilogue_inputs) = call.attributes, call.inputs
    a = a.T if attributes["transpose_a"] else a
    b = b.T if attributes["transpose_b"] else b
    bias = epilogue_inputs[0] if attributes["bias"] else None
    if not attributes["accumulate"]:
        return bind_product(call, call.out, a, b, bias=bias, activation=attributes["activation"])
    c, alpha = epilogue_inputs[-2:]
    out = call.out
    run = _bind_accumulation(call, a, b, alpha)
    if c.data_ptr() == out.data_ptr() and c.stride() == out.stride():
        return run

    def copy_and_run() -> None:
        out.copy_(c)
        run()

    return copy_and_run


def _gemm_reference(
    a: Any,
    b: Any,
    *epilogue_inputs: Any,
    transpose_a: bool,
    transpose_b: bool,
    bias: bool,
    activation: str,
    accumulate: bool,
    dtype: DType,
) -> Any:
    product = (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    if bias:
        product = product + epilogue_inputs[0]
    if activation == "relu":
        product = np.maximum(product, 0)
    return epilogue_inputs[-2] + epilogue_inputs[-1] * product if accumulate else product


def numpy_product(node: Node, transpose_a: bool, transpose_b: bool) -> Callable[..., object] | None:
    """Return the product of two small matrices, or of a matrix and a vector, of a type that NumPy
    sums in, as a function of NumPy's arrays; None where the kernel is faster."""
    is_small = all(x.size <= MAX_NUMPY_OPERAND for x in (node, *node.inputs))
    is_integer = node.dtype.is_integer
    max_flops = MAX_NUMPY_INTEGER_FLOPS if is_integer else MAX_NUMPY_FLOPS
    is_small = is_small and node.operation.flops(node) <= max_flops
    is_small |= len(node.shape) < 2  # a product with a vector takes as long as to read the matrix
    is_number = is_integer or node.dtype.kind in ("float", "complex")
    is_same = node.dtype is node.inputs[0].dtype and is_number
    if not (is_small and is_same):
        return None
    a = node.inputs[0]
    if (len(a.shape), len(node.shape)) == (2, 1):
        from magmath.kernels.gemm.divided_gemv import MIN_SLENDER_BYTES, multiply_slender

        if a.nbytes >= MIN_SLENDER_BYTES:
            return partial(multiply_slender, transposed=transpose_a)
    if not (transpose_a or transpose_b):
        return np.matmul
    return lambda a, b, out: np.matmul(a.T if transpose_a else a, b.T if transpose_b else b, out)


def _numpy_function(node: Node) -> Callable[..., object] | None:
    attributes = node.attributes
    if len(node.inputs) > 2 or attributes["activation"] != "none":
        return None
    return numpy_product(node, attributes["transpose_a"], attributes["transpose_b"])


def _leading(x: NativeOperand) -> str | None:
    """Return the leading dimension of a row-major matrix, None if its rows are not contiguous."""
    if x.shape[1] > 1 and x.strides[1] != 1:
        return None
    return str(max(x.strides[0] if x.shape[0] > 1 else x.shape[1], x.shape[1], 1))


def emit_gemm(w: Writer, call: NativeCall) -> bool:
    """Write a call of the tiled product, or of BLAS with a loop for bias and activation.

    Returns False unless the operands are float32 or float64 matrices with contiguous rows; the
    program is then replayed.
    """
    attributes, (a, b, *epilogue_inputs), out = call.attributes, call.inputs, call.out
    leading = [_leading(x) for x in (a, b, out)]
    blas = out.dtype.name in ("float32", "float64") and a.dtype == out.dtype
    if len(out.shape) != 2 or None in leading or not blas:
        return False
    accumulate = bool(attributes.get("accumulate"))
    bias = epilogue_inputs[0] if attributes.get("bias") else None
    can_tile = not (attributes["transpose_a"] and attributes["transpose_b"]) and _is_row(bias)
    if accumulate and not can_tile:
        return False
    one, zero = literal(1, out.dtype), literal(0, out.dtype)
    alpha = epilogue_inputs[-1].at([]) if accumulate else one
    if accumulate and epilogue_inputs[-2].name != out.name:
        with w.loops(out.shape) as indices:
            w.line(f"{out.at(indices)} = {epilogue_inputs[-2].at(indices)}")
    relu = attributes.get("activation") == "relu"
    extents = *out.shape, a.shape[0 if attributes["transpose_a"] else 1]
    arguments = (
        f"{bool(attributes['transpose_a'])}, {bool(attributes['transpose_b'])}, "
        f"{', '.join(map(str, extents))}, {alpha}, address({a.name}), {leading[0]}, "
        f"address({b.name}), {leading[1]}, {one if accumulate else zero}, address({out.name}), "
        f"{leading[2]}"
    )
    row = "0" if bias is None else f"address({bias.name})"
    of_blas = f"gemm_{out.dtype.name}({arguments})"
    tiled = f"tiled_gemm_{out.dtype.name}({arguments}, {row}, {int(relu)})"
    if can_tile and _should_tile(*extents):
        w.line(tiled)
    elif accumulate:  # if alpha is 0, BLAS would not read the operands, which may contain NaN
        _emit_choice(w, f"{alpha} == {zero}", tiled, of_blas)
    else:
        w.line(of_blas)
        _emit_epilogue(w, out, bias, relu)
    return True


def _emit_choice(w: Writer, condition: str, chosen: str, otherwise: str) -> None:
    w.line(f"if {condition}:")
    w.line(f"    {chosen}")
    w.line("else:")
    w.line(f"    {otherwise}")


def _should_tile(m: int, n: int, k: int) -> bool:
    """Return True if the tiled product is faster than OpenBLAS, both single-threaded in native
    code."""
    return min(m, n) > 1 and m * n * k <= MAX_TILED_MULTIPLICATIONS


def _is_row(bias: NativeOperand | None) -> bool:
    return bias is None or bias.strides == (1,)


def _emit_epilogue(w: Writer, out: NativeOperand, bias: NativeOperand | None, relu: bool) -> None:
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
    vjp=vjp_after_gradients,
    kernel=_gemm_kernel,
    native=emit_gemm,
    reference=_gemm_reference,
    numpy_function=_numpy_function,
    flops=_gemm_flops,
    epilogues=frozenset({"convert", "bias", "relu", "accumulate"}),
    efficiency=lambda node, local: product_efficiency(*local),
    decompositions=in_panels,
)


def gemm(
    a: Node,
    b: Node,
    *epilogue_inputs: Node,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: bool = False,
    activation: str = "none",
    accumulate: bool = False,
    dtype: DType | None = None,
) -> Node:
    """Return a 2-D product with transposes, bias row, activation or accumulation folded in.

    `dtype` is the result's type, by default the operands' type.
    """
    return apply(
        GEMM,
        a,
        b,
        *epilogue_inputs,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        bias=bias,
        activation=activation,
        accumulate=accumulate,
        dtype=a.dtype if dtype is None else dtype,
    )


OPERATIONS = {"gemm": GEMM}
