"""Fourier transforms by the MKL that torch contains, on memory with any strides.

`torch.fft` computes into new memory, usually transposed, and copies the result to its destination.
MKL's own routines (Intel's "Discrete Fourier Transform Interface") read and write any strides,
optionally in place, and scale the result.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import final

import torch
from torch import Tensor

from magmath.core.type_aliases import BoundCall
from magmath.kernels.fortran import mkl

CALL_ELEMENTS = 4096
"""Minimum number of elements per call if there are several calls: with fewer, the calls cost more
than torch's copies."""
_MAX_AXES = 7
_PRECISION = {torch.float32: "s", torch.float64: "d", torch.complex64: "s", torch.complex128: "d"}

# settings of a descriptor and their values, from mkl_dfti.h
_FORWARD_SCALE, _BACKWARD_SCALE, _COUNT, _STORAGE, _PLACEMENT = 4, 5, 7, 10, 11
_STRIDES, _DISTANCES = (12, 13), (14, 15)
_COMPLEX, _REAL = 32, 33
_COMPLEX_STORAGE = 39
_IN_PLACE, _OUT_OF_PLACE = 43, 44


def routine(
    out: Tensor, x: Tensor, axes: Sequence[int], *, inverse: bool, scale: float
) -> list[BoundCall]:
    """Return bound calls that transform x over `axes` into `out`, which may be x itself.

    x and out are complex and have one shape, or one is real and the other contains the first
    n // 2 + 1 coefficients along the only axis. The list is empty if MKL is not available, does not
    support the transform, or would compute too few elements per call.
    """
    library = _library() if out.device.type == "cpu" else None
    if library is None or not out.numel() or len(axes) > _MAX_AXES or x.is_conj() or x.is_neg():
        return []
    batch = _batch(out, x, axes)
    inner = max(batch, key=lambda b: b.count, default=_BatchDimension(1, 0, 0))
    offsets = _offsets([b for b in batch if b is not inner])
    if len(offsets) > 1 and out.numel() < len(offsets) * CALL_ELEMENTS:
        return []
    in_place = is_same_memory(out, x)
    real = not (x.is_complex() and out.is_complex())
    extents = [max(out.shape[d], x.shape[d]) for d in axes]
    plan = _Descriptor(library, _PRECISION[x.dtype], _REAL if real else _COMPLEX, extents)
    plan.set(_PLACEMENT, ctypes.c_int(_IN_PLACE if in_place else _OUT_OF_PLACE))
    plan.set(_STORAGE, ctypes.c_int(_COMPLEX_STORAGE))
    for setting, tensor in zip(_STRIDES, (x, out), strict=True):
        plan.set(setting, _longs([0, *[tensor.stride(d) for d in axes]]))
    for setting, step in zip(_DISTANCES, (inner.x_step, inner.out_step), strict=True):
        plan.set(setting, ctypes.c_long(step))
    plan.set(_COUNT, ctypes.c_long(inner.count))
    plan.set(_BACKWARD_SCALE if inverse else _FORWARD_SCALE, ctypes.c_double(scale))
    plan.commit()
    pairs = [((x, x_at), (out, out_at)) for x_at, out_at in offsets]
    return [plan.call(inverse, *pair[: 1 if in_place else 2]) for pair in pairs]


def is_same_memory(x: Tensor, y: Tensor) -> bool:
    """Return True if both tensors have the same address, strides and type."""
    return (x.data_ptr(), x.stride(), x.dtype) == (y.data_ptr(), y.stride(), y.dtype)


@final
@dataclass(frozen=True)
class _BatchDimension:
    """A dimension of a batch: its length, and its strides in the operand and in the result."""

    count: int
    x_step: int
    out_step: int


def _batch(out: Tensor, x: Tensor, axes: Sequence[int]) -> list[_BatchDimension]:
    """Return the dimensions other than `axes`, merged where they are contiguous in memory."""
    batch: list[_BatchDimension] = []
    batch_dims = [d for d in range(x.ndim) if d not in axes and x.shape[d] > 1]
    for d in sorted(batch_dims, key=out.stride):
        count, steps = x.shape[d], (x.stride(d), out.stride(d))
        last = batch[-1] if batch else None
        if last and steps == (last.count * last.x_step, last.count * last.out_step):
            batch[-1] = _BatchDimension(last.count * count, last.x_step, last.out_step)
        else:
            batch.append(_BatchDimension(count, *steps))
    return batch


def _offsets(batch: Sequence[_BatchDimension]) -> list[tuple[int, int]]:
    """Return the offset of each part of a batch in the operand and in the result, in elements."""
    return [
        (
            sum(i * b.x_step for i, b in zip(index, batch, strict=True)),
            sum(i * b.out_step for i, b in zip(index, batch, strict=True)),
        )
        for index in product(*[range(b.count) for b in batch])
    ]


def _longs(values: Sequence[int]) -> ctypes.Array[ctypes.c_long]:
    return (ctypes.c_long * len(values))(*values)


@final
class _Descriptor:
    """A transform planned by the library; it is freed with the last call that refers to it."""

    def __init__(
        self, library: ctypes.CDLL, precision: str, domain: int, extents: Sequence[int]
    ) -> None:
        self._library = library
        self._handle = ctypes.c_void_p()
        handle, kind = ctypes.byref(self._handle), ctypes.c_int(domain)
        if len(extents) == 1:
            create = getattr(library, f"DftiCreateDescriptor_{precision}_1d")
            self._check(create(handle, kind, ctypes.c_long(extents[0])))
        else:
            create = getattr(library, f"DftiCreateDescriptor_{precision}_md")
            self._check(create(handle, kind, ctypes.c_long(len(extents)), _longs(extents)))
        weakref.finalize(self, library.DftiFreeDescriptor, handle).atexit = False

    def set(self, setting: int, value: object) -> None:
        """Set a property of the transform."""
        self._check(self._library.DftiSetValue(self._handle, ctypes.c_int(setting), value))

    def commit(self) -> None:
        """Plan the transform with the properties that have been set."""
        self._check(self._library.DftiCommitDescriptor(self._handle))

    def call(self, inverse: bool, *operands: tuple[Tensor, int]) -> BoundCall:
        """Return a bound call on one tensor (in place) or from one to another, each with the offset
        of its first element."""
        function = (
            self._library.DftiComputeBackward if inverse else self._library.DftiComputeForward
        )
        addresses = [ctypes.c_void_p(x.data_ptr() + at * x.element_size()) for x, at in operands]
        return partial(self._run, function, addresses, operands)

    def _run(
        self, function: Callable[..., int], addresses: Sequence[object], operands: object
    ) -> None:
        """Compute. `operands`: the tensors, since the addresses hold no reference."""
        self._check(function(self._handle, *addresses))

    def _check(self, status: int) -> None:
        if status:
            message = self._library.DftiErrorMessage(ctypes.c_long(status)).decode()
            raise RuntimeError(f"MKL could not compute a Fourier transform: {message}")


@cache
def _library() -> ctypes.CDLL | None:
    """Return the library of torch that contains MKL; None if it has no DFTI routines."""
    library = mkl()
    if library is None:
        return None
    try:
        kinds = [
            f"CreateDescriptor_{precision}_{form}" for precision in "sd" for form in ("1d", "md")
        ]
        for name in (*kinds, "SetValue", "CommitDescriptor", "ComputeForward", "ComputeBackward"):
            getattr(library, f"Dfti{name}").restype = ctypes.c_long
        library.DftiFreeDescriptor.restype = ctypes.c_long
        library.DftiErrorMessage.restype = ctypes.c_char_p
    except AttributeError:
        return None
    return library
