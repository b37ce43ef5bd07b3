"""Singular values and vectors of a bidiagonal matrix by divide and conquer, column by column.

LAPACK's `lasda` computes the whole tree of subproblems in compact form: the factors of the vectors
of every merge (poles, roots, their distances, rotations, a permutation), O(n log n) numbers. This
needs little time and memory, so every worker computes all of it. The vectors themselves, n²
numbers, are computed from it a few columns at a time, by matrix products: each worker computes its
own ones without communication. Sources: Gu and Eisenstat (1995), "A divide-and-conquer algorithm
for the bidiagonal SVD"; LAPACK's `lasda` and `lals0`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from magmath.errors import LinAlgError
from magmath.kernels.fortran import call

Reals: TypeAlias = NDArray[np.float64]

LEAF = 32
"""Maximum size of the subproblems that are solved by QR iterations."""
PANEL = 64
"""Rows of a merge's matrix that are computed at once."""


@final
class Bidiagonal:
    """The SVD of an upper bidiagonal matrix, B = U·diag(values)·Vᵀ, values descending or ascending.

    diagonal: (n,), above: (n - 1,), both float64. Raises LinAlgError if an iteration does not
    converge.
    """

    def __init__(self, diagonal: Reals, above: Reals, *, ascending: bool = False) -> None:
        n = len(diagonal)
        scale = max(np.abs(diagonal).max(initial=0.0), np.abs(above).max(initial=0.0))
        d, e = diagonal / (scale or 1.0), above / (scale or 1.0)
        self._tree = _Leaf(d, e) if n <= LEAF else _Tree(d, e)
        values = self._tree.values
        self._order = np.argsort(values if ascending else -values, kind="stable")
        self.values: Reals = values[self._order] * scale

    def vectors(self, out: Tensor, spare: Tensor, first: int, *, left: bool) -> None:
        """Store columns `first` to `first + w - 1` of U, or of V, in out: real, (n, w), on the CPU.
        `spare` is workspace of the same shape and type."""
        if out.numel():
            self._tree.vectors(out, spare, self._order[first : first + out.shape[1]], left=left)


@final
class _Leaf:
    """The SVD of a small matrix, computed directly."""

    def __init__(self, d: Reals, e: Reals) -> None:
        self._u, self.values, self._vt = np.linalg.svd(np.diag(d) + np.diag(e, 1))

    def vectors(self, out: Tensor, spare: Tensor, columns: NDArray[np.intp], *, left: bool) -> None:
        out.copy_(torch.from_numpy(self._u[:, columns] if left else self._vt.T[:, columns]))


@final
@dataclass
class _Merge:
    """A merge of two subproblems and the row between them: B = diag(U₁, 1, U₂)·M·diag(V₁, V₂)ᵀ.

    start: the first row; left, right: rows of the subproblems; extra: 1 if the problem has one more
    column than rows. The first k rows of M correspond to roots of the secular equation, the others
    are deflated.
    """

    start: int
    left: int
    right: int
    extra: int
    k: int
    permutation: NDArray[np.intp]  # the rows of B for the rows of M, except the first
    rotations: list[tuple[int, int, float, float]]  # pairs of rows, sine and cosine
    null: tuple[float, float]  # cosine and sine of the rotation with the extra column
    z: Reals
    poles: Reals
    roots: Reals
    below: Reals
    above: Reals
    norms: Reals

    @cached_property
    def _lengths(self) -> Reals:
        """The norms of the left vectors that `_left_vectors` returns."""
        total = np.zeros(self.k)
        for rows in _panels(self.k):
            total += np.square(self._left_vectors(rows, np.arange(self.k))).sum(0)
        return np.sqrt(total)

    def factors(self, rows: slice, columns: NDArray[np.intp], *, left: bool) -> Reals:
        """Return these rows and columns of M's left or right singular vectors."""
        if not left:
            return self._ratios(rows, columns) / self.norms[columns]
        return self._left_vectors(rows, columns) / self._lengths[columns]

    def _left_vectors(self, rows: slice, columns: NDArray[np.intp]) -> Reals:
        vectors = self._ratios(rows, columns) * self.poles[rows, None]
        if rows.start == 0:
            vectors[0] = -1.0
        return vectors

    def _ratios(self, rows: slice, columns: NDArray[np.intp]) -> Reals:
        """Return zₐ / (poleₐ² - root_b²) for each row a and column b.

        The differences come from the distances that the solver of the secular equation returns:
        root_b - pole_b is below_b, and root_b - pole_{b+1} is above_b.
        """
        poles = self.poles[rows, None]
        nearer = np.arange(rows.start, rows.stop)[:, None] <= columns
        gap = poles - np.where(nearer, self.poles[columns], self._next[columns])
        gap -= np.where(nearer, self.below[columns], self.above[columns])
        gap *= poles + self.roots[columns]
        z = self.z[rows]
        gap[z == 0] = 1
        return np.divide(z[:, None], gap, out=gap)

    @cached_property
    def _next(self) -> Reals:
        """The next pole after each pole, 0 after the last."""
        return np.append(self.poles[1:], 0.0)


def _panels(count: int) -> list[slice]:
    return [slice(i, min(i + PANEL, count)) for i in range(0, count, PANEL)]


@final
class _Compact:
    """The result of `lasda` for a bidiagonal matrix; Fortran stores its arrays by columns."""

    def __init__(self, d: Reals, e: Reals) -> None:
        n = len(d)
        self.levels = levels = int(np.log(n / (LEAF + 1)) / np.log(2.0)) + 1
        self.values = _apart_from_zero(d)
        self.u, self.vt = np.zeros((LEAF, n)), np.zeros((LEAF + 1, n))
        self.k, self.rotated = np.zeros(n, np.int32), np.zeros(n, np.int32)
        self.below, self.above = np.zeros((levels, n)), np.zeros((levels, 2, n))
        self.z, self.poles = np.zeros((levels, n)), np.zeros((levels, 2, n))
        self.columns, self.turns = np.zeros((levels, 2, n), np.int32), np.zeros((levels, 2, n))
        self.order = np.zeros((levels, n), np.int32)
        self.c, self.s = np.zeros(n), np.zeros(n)
        work, integers = np.empty(6 * n + (LEAF + 1) ** 2), np.empty(7 * n, np.int32)
        info = call(
            "lasda", torch.empty(0, dtype=torch.float64), 1, LEAF, n, 0,
            *_tensors(self.values, np.append(e, 0.0), self.u), n,
            *_tensors(self.vt, self.k, self.below, self.above, self.z, self.poles),
            *_tensors(self.rotated, self.columns), n,
            *_tensors(self.order, self.turns, self.c, self.s, work, integers),
        )  # fmt: skip
        if info:
            raise LinAlgError(f"lasda did not converge (info {info})")

    def merge(self, level: int, position: int, start: int, size: int) -> _Merge:
        """Return the merge of these rows, the `position`-th of its level; the root is level 0."""
        j = 2 ** (level + 1) - 2 - position
        k, rotated = int(self.k[j]), int(self.rotated[j])
        rows, inner = slice(start, start + size), slice(start, start + k)
        pairs = self.columns[level, :, rows][:, :rotated].T - 1
        turns = self.turns[level, :, rows][:, :rotated].T
        return _Merge(
            start=start,
            left=size // 2,
            right=size - size // 2 - 1,
            extra=int(position < 2**level - 1),
            k=k,
            permutation=self.order[level, rows].astype(np.intp) - 1,
            rotations=list(zip(*pairs.T.tolist(), *turns.T.tolist(), strict=True)),
            null=(float(self.c[j]), float(self.s[j])),
            z=self.z[level, inner],
            poles=self.poles[level, 1, inner],
            roots=self.poles[level, 0, inner],
            below=self.below[level, inner],
            above=self.above[level, 0, inner],
            norms=self.above[level, 1, inner],
        )


def _apart_from_zero(d: Reals) -> Reals:
    """Return a copy in which numbers smaller than the machine epsilon are replaced by it, with
    their sign; the largest element of the matrix is 1."""
    tiny = np.finfo(np.float64).eps
    return np.where(np.abs(d) < tiny, np.copysign(tiny, d), d)


@final
class _Tree:
    """All merges, from the root to the leaves, and the leaves' vectors."""

    def __init__(self, d: Reals, e: Reals) -> None:
        compact = _Compact(d, e)
        self.values, self._u, self._vt = compact.values, compact.u, compact.vt
        self._levels: list[list[_Merge]] = []
        nodes = [(0, len(d))]
        for level in range(compact.levels):
            merges = [compact.merge(level, i, *node) for i, node in enumerate(nodes)]
            self._levels.append(merges)
            nodes = [
                part
                for m in merges
                for part in ((m.start, m.left), (m.start + m.left + 1, m.right))
            ]
        self._leaves = nodes

    def vectors(self, out: Tensor, spare: Tensor, columns: NDArray[np.intp], *, left: bool) -> None:
        """Store these columns of U or V in out, computed from the root down."""
        (root,) = self._levels[0]
        _unit_columns(root, spare, columns, left)
        _undo(root, spare, out, left)
        for merges in self._levels[1:]:
            for merge in merges:
                end = merge.start + merge.left + merge.right + 1 + (0 if left else merge.extra)
                part, free = out[merge.start : end], spare[merge.start : end]
                _combine(merge, free, part, left)
                _undo(merge, free, part, left)
        for position, (start, size) in enumerate(self._leaves):
            extra = 0 if left or position == len(self._leaves) - 1 else 1
            rows = slice(start, start + size + extra)
            # Fortran's memory order: the rows of `u` are the columns of U, those of `vt` of V
            small = self._u[:size, rows].T if left else self._vt[: size + extra, rows]
            part, free = out[rows], spare[rows]
            torch.mm(torch.from_numpy(np.ascontiguousarray(small)).to(out.dtype), part, out=free)
            part.copy_(free)


def _unit_columns(merge: _Merge, out: Tensor, columns: NDArray[np.intp], left: bool) -> None:
    """Store these columns of a merge's vectors in out."""
    out.zero_()
    k = merge.k
    inside = columns < k
    positions = np.flatnonzero(inside)
    out[torch.from_numpy(columns[~inside]), torch.from_numpy(np.flatnonzero(~inside))] = 1
    if k == 1:
        out[0, torch.from_numpy(positions)] = _single(merge, left)
        return
    for rows in _panels(k):
        factors = merge.factors(rows, columns[positions], left=left)
        out[rows, torch.from_numpy(positions)] = torch.from_numpy(factors).to(out.dtype)


def _combine(merge: _Merge, out: Tensor, x: Tensor, left: bool) -> None:
    """Compute out = a merge's vectors times x; deflated rows are copied."""
    k = merge.k
    out[k:] = x[k:]
    if k == 1:
        torch.mul(x[:1], _single(merge, left), out=out[:1])
        return
    every = np.arange(k)
    for rows in _panels(k):
        factors = torch.from_numpy(merge.factors(rows, every, left=left)).to(out.dtype)
        torch.mm(factors, x[:k], out=out[rows])


def _single(merge: _Merge, left: bool) -> float:
    """Return the only element of the vectors of a merge with one root."""
    return -1.0 if left and merge.z[0] < 0 else 1.0


def _undo(merge: _Merge, x: Tensor, out: Tensor, left: bool) -> None:
    """Undo the rotation of the null space, the permutation and the rotations of x; store the result
    in out."""
    if merge.extra and not left:
        cosine, sine = merge.null
        x_first, x_last = x[0].clone(), x[-1]
        x[0] = cosine * x_first + sine * x_last
        out[-1] = cosine * x_last - sine * x_first
    size = merge.left + merge.right + 1
    out[merge.left] = x[0]
    out[torch.from_numpy(merge.permutation[1:])] = x[1:size]
    for second, first, sine, cosine in reversed(merge.rotations):
        row_1, row_2 = out[first].clone(), out[second].clone()
        out[first] = cosine * row_1 - sine * row_2
        out[second] = cosine * row_2 + sine * row_1


def _tensors(*arrays: Any) -> list[Tensor]:
    return [torch.from_numpy(array) for array in arrays]
