"""Shared functions of the operations that LAPACK computes: checks, index notation and kernels.

An operation has one result, so a factorization packs its results into one array: Q over R, the
column order over L and U; `qr_parts` and `lu_parts` separate them. Stacks of matrices may be split
over workers; a matrix may not: its dimensions are `.`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magmath.core.dtypes import DType
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, MatrixShapeError, ShapeError
from magmath.graph import KernelCall, Node, Shape
from magmath.graph.operation import Infer, NumpyFunction
from magmath.ops.index_letters import LETTERS, whole_letters

MAX_SMALL = 1 << 14
"""Elements of a stack of small matrices."""
TYPES = ("float32", "float64", "complex64", "complex128")


def check_type(name: str, *operands: Node) -> None:
    """Raise DTypeError unless the operands share a type that LAPACK supports."""
    for x in operands:
        if x.dtype.name not in TYPES:
            raise DTypeError(
                f"{name}: takes {', '.join(TYPES)}, was given {x.dtype}; convert with "
                f"mm.astype(x, …)"
            )
        if x.dtype is not operands[0].dtype:
            raise DTypeError(
                f"{name}: operands have types {operands[0].dtype} and {x.dtype}"
                "; convert one with mm.astype"
            )


def check_matrix(name: str, a: Node, *, square: bool = False) -> None:
    """Raise MatrixShapeError unless `a` is a stack of matrices, square ones if `square`."""
    needed = "square matrices (…, n, n)" if square else "matrices (…, m, n)"
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise MatrixShapeError(
            f"{name}: needs {needed}, was given {a.shape}; reshape or slice the array"
        )


def square_infer(
    name: str,
    shape: Callable[[Shape], Shape] = lambda shape: shape,
    dtype: Callable[[DType], DType] = lambda dtype: dtype,
) -> Infer:
    """Return the inference of an operation on square matrices, from their shape and their type."""

    def infer(a: Node) -> tuple[Shape, DType]:
        check_type(name, a)
        check_matrix(name, a, square=True)
        return shape(a.shape), dtype(a.dtype)

    return infer


def check_system(name: str, a: Node, b: Node) -> None:
    """Raise ShapeError unless `a` is square, and `b` has as many rows and the same stack."""
    check_matrix(name, a, square=True)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(
            f"{name}: needs (…, n, n) and (…, n, k), was given {a.shape} and {b.shape}"
            "; reshape the right side"
        )


def stacked_axes(node: Node) -> str:
    """Return index notation in which stacks may be split and matrices may not."""
    batch = LETTERS[: node.inputs[0].ndim - 2]
    inputs = ",".join(batch + whole_letters(x.ndim - len(batch)) for x in node.inputs)
    return f"{inputs}->{batch}{whole_letters(node.ndim - len(batch))}"


def columns_axes(node: Node) -> str:
    """Return index notation in which stacks and the second operand's columns may be split.

    The result has these columns too.
    """
    batch = LETTERS[: node.ndim - 2]
    column = LETTERS[node.ndim]
    return f"{batch}..,{batch}.{column}->{batch}.{column}"


def lapack(name: str, *keys: str, tuned: bool = True) -> Callable[[KernelCall], BoundCall]:
    """Return the kernel `magmath.kernels.linalg.lapack.<name>` with these attributes.

    With `tuned`, the tuner selects a library for it. Workers that compute the same matrix
    select the same library, because factors are unique only up to signs.
    """

    def bind(call: KernelCall) -> BoundCall:
        from magmath.kernels.dispatch.tuner import tuner_for
        from magmath.kernels.linalg import lapack

        compute: Callable[..., None] = getattr(lapack, name)
        options: dict[str, object] = {key: call.attributes[key] for key in keys}
        if tuned:
            options["tuner"] = tuner_for(call.context.deterministic or call.repeated)
        out, inputs = call.out, tuple(call.inputs)

        def run() -> None:
            if out.is_contiguous():
                compute(out, *inputs, **options)
                return
            result = out.new_empty(out.shape)
            compute(result, *inputs, **options)
            out.copy_(result)

        return run

    return bind


def small_matrices(name: str, *keys: str, tuned: bool = True) -> NumpyFunction:
    """Return the same kernel as a function of NumPy arrays, for matrices so small that their
    factorization takes no longer than to bind a kernel."""

    def function_of(node: Node) -> Callable[..., object] | None:
        from torch import from_numpy

        from magmath.kernels.dispatch.tuner import tuner_for
        from magmath.kernels.linalg import lapack

        a = node.inputs[0]
        if min(a.shape[-2:]) >= lapack.MIN_BY_POINTER or a.size > MAX_SMALL:
            return None
        compute: Callable[..., None] = getattr(lapack, name)
        options: dict[str, object] = {key: node.attributes[key] for key in keys}
        if tuned:
            options["tuner"] = tuner_for(False)

        def run(*arrays: Any) -> None:
            compute(from_numpy(arrays[-1]), *map(from_numpy, arrays[:-1]), **options)

        return run

    return function_of


def matrix_count(node: Node) -> int:
    """Return the number of matrices in a node's first operand."""
    a = node.inputs[0]
    return a.size // max(a.shape[-1] * a.shape[-2], 1)


def elimination_flops(m: int, n: int) -> float:
    """Return the flops of the elimination of one matrix; reflections need four times as many."""
    k = min(m, n)
    return k * k * (max(m, n) - k / 3)
