"""What the operations have in common that LAPACK computes: checks, index structure and kernels.

An operation has one result, so what belongs together is packed into one array: Q over R, the order
of the columns over L and U; `qr_parts` and `lu_parts` take it apart. Stacks of matrices may be
split over workers, a matrix may not: its dimensions are `.`.
"""

from __future__ import annotations

from collections.abc import Callable

from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node
from magmath.ops.infer_rules import LETTERS, whole_letters

TYPES = ("float32", "float64", "complex64", "complex128")


def check_type(name: str, *operands: Node) -> None:
    """DTypeError unless LAPACK has the operands' type, and they share it."""
    for x in operands:
        if x.dtype.name not in TYPES:
            raise DTypeError(
                f"{name}: takes {', '.join(TYPES)}, was given {x.dtype}; convert with "
                f"mm.astype(x, …)"
            )
        if x.dtype is not operands[0].dtype:
            raise DTypeError(f"{name}: operands have types {operands[0].dtype} and {x.dtype}")


def check_matrix(name: str, a: Node, *, square: bool = False) -> None:
    """ShapeError unless `a` is a stack of matrices, square ones if they must be."""
    needed = "square matrices (…, n, n)" if square else "matrices (…, m, n)"
    if a.ndim < 2 or (square and a.shape[-1] != a.shape[-2]):
        raise ShapeError(f"{name}: needs {needed}, was given {a.shape}")


def check_system(name: str, a: Node, b: Node) -> None:
    """ShapeError unless a is square, and b has as many rows and as many matrices."""
    check_matrix(name, a, square=True)
    if b.ndim != a.ndim or b.shape[:-1] != a.shape[:-1]:
        raise ShapeError(
            f"{name}: needs (…, n, n) and (…, n, k), was given {a.shape} and {b.shape}"
        )


def stacked_axes(node: Node) -> str:
    """Stacks may be split, matrices may not."""
    batch = LETTERS[: node.inputs[0].ndim - 2]
    inputs = ",".join(batch + whole_letters(x.ndim - len(batch)) for x in node.inputs)
    return f"{inputs}->{batch}{whole_letters(node.ndim - len(batch))}"


def columns_axes(node: Node) -> str:
    """The first operand as above; the columns of the second, which the result has, may be split."""
    batch = LETTERS[: node.ndim - 2]
    column = LETTERS[node.ndim]
    return f"{batch}..,{batch}.{column}->{batch}.{column}"


def lapack(
    name: str, *keys: str, tuned: bool = True
) -> Callable[[KernelCall], Callable[[], object]]:
    """The kernel `magmath.kernels.lapack.<name>`, with these attributes; `tuned` where it chooses
    between libraries. Workers that compute the same choose alike: factors are unique but for signs.
    """

    def bind(call: KernelCall) -> Callable[[], object]:
        from magmath.kernels import lapack
        from magmath.kernels.dispatch.tuner import tuner_for

        compute: Callable[..., None] = getattr(lapack, name)
        options: dict[str, object] = {key: call.attributes[key] for key in keys}
        if tuned:
            options["tuner"] = tuner_for(call.context.deterministic or call.repeated)
        out, inputs = call.out, tuple(call.inputs)

        def run() -> None:
            if out.is_contiguous():
                compute(out, *inputs, **options)
                return
            made = out.new_empty(out.shape)
            compute(made, *inputs, **options)
            out.copy_(made)

        return run

    return bind


def count(node: Node) -> int:
    """The number of matrices in a node's first operand."""
    a = node.inputs[0]
    return a.size // max(a.shape[-1] * a.shape[-2], 1)


def elimination_flops(m: int, n: int) -> float:
    """The arithmetic of Gaussian elimination of one matrix; reflections need four times as much."""
    k = min(m, n)
    return k * k * (max(m, n) - k / 3)
