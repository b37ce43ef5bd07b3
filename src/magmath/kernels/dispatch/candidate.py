"""Candidates of kernels, and the rows of their tables: operand types and devices → candidates.

Each family of operations has one table, `ROWS`, in order of preference: products in
`kernels/gemm/gemm_candidates.py`, convolutions in `kernels/conv/convolution_candidates.py`. The
routines of LAPACK (`kernels/linalg/lapack_candidates.py`) have libraries as candidates. The tuner
(`kernels/dispatch/tuner.py`) measures all candidates that accept the operands. The first candidate
is the default, and the only one in deterministic mode. A kernel for another device needs a module
with a candidate, and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from magmath.core.type_aliases import BoundCall

CPU: Final = frozenset({"cpu"})
ANYWHERE: Final = frozenset({"cpu", "cuda"})
CUDA: Final = frozenset({"cuda"})

HALF: Final = frozenset({torch.float16, torch.bfloat16})
SINGLE: Final = frozenset({torch.float32})
SINGLE_AND_DOUBLE: Final = frozenset({torch.float32, torch.float64})
FLOATING: Final = HALF | SINGLE_AND_DOUBLE
COMPLEX: Final = frozenset({torch.complex64, torch.complex128})
INTEGER: Final = frozenset(
    {torch.int8, torch.int16, torch.int32, torch.int64}
    | {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
)
BOOL: Final = frozenset({torch.bool})
LAPACK: Final = SINGLE_AND_DOUBLE | COMPLEX


def is_always_ready() -> bool:
    """Return True, for candidates without code of their own."""
    return True


def can_apply_all_epilogues(problem: object) -> bool:
    """Return True, for candidates that apply every epilogue themselves."""
    return True


def can_apply_no_epilogue(problem: object) -> bool:
    """Return False, for candidates that apply no epilogue."""
    return False


@final
@dataclass(frozen=True, slots=True)
class KernelCandidate:
    """One kernel for an operation; its functions receive a problem (for `gemm`, a product).

    `can_bind` checks shapes and strides, which the table does not contain. `bind` receives the
    problem, and a function that binds a matrix product with its fastest candidate (for `gemm`
    another problem, for a convolution the arguments of `bind_gemm`); it returns a bound call.
    `workspace` is the memory needed in addition to the operands, in bytes. `is_ready` returns
    False, and starts the compiler, if its code is not on disk yet. `can_apply_epilogue` returns
    True if it applies the epilogue of a convolution itself.
    """

    name: str
    can_bind: Callable[[Any], bool]
    bind: Callable[[Any, Callable[..., BoundCall]], BoundCall]
    workspace: Callable[[Any], int] = lambda call: 0
    is_ready: Callable[[], bool] = is_always_ready
    can_apply_epilogue: Callable[[Any], bool] = can_apply_no_epilogue


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A candidate, and the devices and operand types that it supports."""

    candidate: KernelCandidate
    devices: frozenset[str]
    dtypes: frozenset[torch.dtype]


def matching(rows: Sequence[Row], device: str, dtype: torch.dtype) -> tuple[KernelCandidate, ...]:
    """Return the candidates for a device type and an operand type, the default first."""
    return tuple([row.candidate for row in rows if device in row.devices and dtype in row.dtypes])
