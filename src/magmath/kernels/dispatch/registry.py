"""The registry of kernels: operation × device × type → candidates, in order of preference.

`ROWS` is the table. A candidate for products and convolutions is an entry of its module's
`CANDIDATES`, which `kernels/gemm/gemm.py` or `kernels/conv/convolution.py` binds. A candidate for a
LAPACK routine is the name of a library, which `kernels/linalg/lapack_candidates.py` calls. The
tuner (`kernels/dispatch/tuner.py`) measures all candidates of an operation that accept its
operands. The first candidate is the default, and the only one in deterministic mode. A kernel for
another device needs a module with a candidate, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
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
class Candidate:
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
    """A candidate for an operation, the devices and operand types that it supports, and the module
    whose `CANDIDATES` contains it; "" for a library."""

    operation: str
    candidate: str
    devices: frozenset[str]
    dtypes: frozenset[torch.dtype]
    module: str = ""


_PRODUCTS = "magmath.kernels.gemm.gemm_candidates"
_CONVOLUTIONS = "magmath.kernels.conv.convolution_candidates"


def _libraries(operation: str, dtypes: frozenset[torch.dtype] = LAPACK) -> tuple[Row, ...]:
    """Return the rows of an operation that two host libraries with LAPACK's interface compute."""
    return tuple(Row(operation, library, CPU, dtypes) for library in ("scipy", "torch"))


ROWS: tuple[Row, ...] = (
    Row("gemm", "torch", CPU, FLOATING | COMPLEX | INTEGER, _PRODUCTS),
    Row("gemm", "torch", CUDA, FLOATING | COMPLEX, _PRODUCTS),
    Row("gemm", "fused", ANYWHERE, FLOATING, _PRODUCTS),
    Row("gemm", "numpy", CPU, SINGLE_AND_DOUBLE | COMPLEX | INTEGER, _PRODUCTS),
    Row("gemm", "blas", CPU, SINGLE_AND_DOUBLE, _PRODUCTS),
    Row("gemm", "divided", CPU, SINGLE_AND_DOUBLE, _PRODUCTS),
    Row("gemm", "tiled", CPU, SINGLE_AND_DOUBLE, _PRODUCTS),
    Row("gemm", "widened", ANYWHERE, HALF | BOOL, _PRODUCTS),
    Row("gemm", "limbs", ANYWHERE, INTEGER, _PRODUCTS),
    Row("convolution", "torch", ANYWHERE, FLOATING | COMPLEX, _CONVOLUTIONS),
    Row("convolution", "dot products", CPU, SINGLE_AND_DOUBLE, _CONVOLUTIONS),
    Row("convolution", "widened", CPU, HALF, _CONVOLUTIONS),
    Row("convolution", "channels-last", ANYWHERE, HALF | SINGLE, _CONVOLUTIONS),
    Row("convolution", "packed", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "winograd 4×4", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "winograd 2×2", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "winograd 4×4, stride 2", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "winograd 3×3, stride 2", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "winograd 2×2, 5×5 filters", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "direct", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "depthwise", CPU, SINGLE, _CONVOLUTIONS),
    Row("convolution", "products", CPU, SINGLE, _CONVOLUTIONS),
    *_libraries("cholesky"),
    *_libraries("lu"),
    *_libraries("inverse"),
    *_libraries("divide"),
    *_libraries("reflections"),
    *_libraries("eigen"),
    *_libraries("singular"),
    *_libraries("product", SINGLE_AND_DOUBLE),
)


@cache
def candidates(operation: str, device: str, dtype: torch.dtype) -> tuple[Candidate, ...]:
    """Return the candidates for an operation, a device type and an operand type, the default
    first."""
    rows = _rows(operation, device, dtype)
    return tuple(import_module(row.module).CANDIDATES[row.candidate] for row in rows)


def libraries(routine: str, device: str, dtype: torch.dtype) -> list[str]:
    """Return the libraries that compute a LAPACK routine, the default first."""
    return [row.candidate for row in _rows(routine, device, dtype)]


def _rows(operation: str, device: str, dtype: torch.dtype) -> list[Row]:
    return [
        row
        for row in ROWS
        if row.operation == operation and device in row.devices and dtype in row.dtypes
    ]
