"""QR of tall-skinny matrices by Cholesky: two sweeps of products replace one of reflections.

R is the Cholesky factor of AᴴA. A second sweep recovers the accuracy that is lost by squaring the
condition number, if the first sweep results in nearly orthonormal columns. The second product
measures the distance, so the caller learns whether it must use another method. Source: Yamamoto,
Nakatsukasa, Yanagisawa and Fukaya (2015), "Roundoff error analysis of the CholeskyQR2 algorithm".
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from magmath.kernels.fortran import invoke
from magmath.kernels.linalg.diagonal_signs import normalize_signs
from magmath.kernels.linalg.lapack_candidates import copy_single_threaded
from magmath.kernels.thread_count import single_threaded_blas

if TYPE_CHECKING:
    from magmath.comm import Communicator

_ROWS = 2048  # rows of a block, which fits into the cache of one thread
_GENTLE = 10.0  # condition number, over n, up to which the inverse loses less than the products
_NEAR = 0.5  # maximum Frobenius distance from the identity for an accurate second sweep


def _keep(product: Tensor) -> None:
    """Sum a product over the workers if there is only one: it stays as it is."""


def try_tall_qr(
    q: Tensor,
    r: Tensor,
    a: Tensor,
    total: Callable[[Tensor], None] = _keep,
    is_on_any: Callable[[bool], bool] = bool,
) -> bool:
    """Factorize a = q·r with r upper triangular and a positive diagonal; return False if a is too
    ill-conditioned.

    a and q are (m, n), r is (n, n). With `total`, which sums a matrix over the workers, and
    `is_on_any`, which returns whether a condition holds on any worker, a and q are the rows of one
    worker, and all workers get the same return value, and the same r where their libraries round
    alike. They must agree on the conditions: libraries round the same matrix differently on other
    processors or threads.
    """
    a_blocks, q_blocks = torch.split(a, _ROWS), torch.split(q, _ROWS)

    def multiply(block: int, product: Tensor) -> None:
        _add_product(product, a_blocks[block])

    def divide_and_multiply(block: int, product: Tensor) -> None:
        _copy_block(q_blocks[block], a_blocks[block])
        first.divide(q_blocks[block])
        _add_product(product, q_blocks[block])

    def divide(block: int, product: Tensor) -> None:
        second.divide(q_blocks[block])

    product = _sweep(multiply, len(a_blocks), a)
    total(product)
    lower, info = torch.linalg.cholesky_ex(product)
    if is_on_any(bool(info) or not bool(torch.isfinite(lower.diagonal()).all())):
        return False
    first = _Factor(lower)
    product = _sweep(divide_and_multiply, len(a_blocks), a)
    total(product)
    identity = torch.eye(len(product), dtype=product.dtype, device=product.device)
    distance = float(torch.linalg.matrix_norm(product - identity))
    if is_on_any(not distance < _NEAR):
        return False
    if not is_on_any(distance > len(product) * torch.finfo(a.dtype).eps):
        r.copy_(first.lower.mH)  # the columns of q are orthonormal to rounding error
        return True
    second = _Factor(torch.linalg.cholesky(product))
    _sweep(divide, len(a_blocks), a)
    r.copy_(second.lower.mH @ first.lower.mH)
    return True


def distributed_tall_qr(
    comm: Communicator, scratch: Tensor, q: Tensor, r: Tensor, a: Tensor
) -> None:
    """Factorize a = q·r for the rows of a, (m, n), m at least n, of each worker; all workers get
    the same r. Collective.

    This uses `try_tall_qr` with the sum of all workers' AᴴA. If that is not accurate enough, it
    uses TSQR: each worker computes a QR of its own rows, and all compute a QR of the resulting
    triangles, which are stacked in `scratch`. Source: Demmel, Grigori, Hoemmen and Langou (2012),
    "Communication-optimal parallel and sequential QR and LU factorizations".
    """

    def is_on_any(condition: bool) -> bool:
        return bool(comm.allreduce_max(int(condition)))

    if try_tall_qr(q, r, a, comm.allreduce, is_on_any):
        return
    n = a.shape[1]
    own_q, triangle = torch.linalg.qr(a)
    stack = scratch[: comm.size * n * n * a.itemsize].view(a.dtype).view(comm.size * n, n)
    comm.allgather(stack, triangle.contiguous())
    joint, triangle = torch.linalg.qr(stack)
    normalize_signs(joint, triangle)
    torch.mm(own_q, joint[comm.rank * n : (comm.rank + 1) * n], out=q)
    r.copy_(triangle)


@final
class _Factor:
    """Divides rows by a lower triangular matrix.

    If the matrix is well-conditioned, it multiplies by the inverse, which is three times as fast.
    """

    def __init__(self, lower: Tensor) -> None:
        self.lower = lower.contiguous()
        identity = torch.eye(len(lower), dtype=lower.dtype, device=lower.device)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False).contiguous()
        norms = torch.linalg.matrix_norm(lower) * torch.linalg.matrix_norm(inverse)
        self.inverse = inverse if float(norms) < _GENTLE * len(lower) else None

    def divide(self, rows: Tensor) -> None:
        """Compute rows = rows·lower⁻ᴴ in place."""
        matrix = self.lower if self.inverse is None else self.inverse
        if _can_pass_pointers(rows, matrix):
            m, n = rows.shape
            routine = "trsm" if self.inverse is None else "trmm"
            one = torch.ones(1, dtype=rows.dtype)
            invoke(routine, rows, b"L", b"U", b"T", b"N", n, m, one, matrix, n, rows, n)
        elif self.inverse is not None:
            rows.copy_(rows @ matrix.mH)
        else:
            rows.copy_(torch.linalg.solve_triangular(matrix.mH, rows, upper=True, left=False))


def _sweep(work: Callable[[int, Tensor], None], blocks: int, like: Tensor) -> Tensor:
    """Call `work` for every block, on several threads; return the Hermitian sum of the products of
    the threads.

    The threads share no data: each has its own product, and a block is small enough for one thread.
    Only the lower triangle of a product is used.
    """
    lanes = min(torch.get_num_threads(), blocks) if like.device.type == "cpu" else 1
    n = like.shape[-1]
    products = torch.zeros(lanes, n, n, dtype=like.dtype, device=like.device)

    def lane(number: int) -> None:
        for block in range(number, blocks, lanes):
            work(block, products[number])

    if lanes == 1:
        lane(0)
    else:
        with single_threaded_blas(), ThreadPoolExecutor(lanes) as threads:
            list(threads.map(lane, range(lanes)))
    lower = products.sum(0).tril()
    return lower + lower.tril(-1).mH


def _can_pass_pointers(*tensors: Tensor) -> bool:
    """Return True for tensors that OpenBLAS's routines can use without a copy."""
    dense = all(t.is_contiguous() for t in tensors)
    return dense and tensors[0].device.type == "cpu" and not tensors[0].is_complex()


def _copy_block(target: Tensor, source: Tensor) -> None:
    if target.device.type == "cpu":
        copy_single_threaded(target, source)
    else:
        target.copy_(source)


def _add_product(product: Tensor, rows: Tensor) -> None:
    """Add rowsᴴ·rows to a Hermitian matrix, of which only the lower triangle is valid."""
    if _can_pass_pointers(product, rows):
        m, n = rows.shape
        one = torch.ones(1, dtype=rows.dtype)
        invoke("syrk", rows, b"U", b"N", n, m, one, rows, n, one, product, n)
    else:
        product.addmm_(rows.mH, rows)
