"""Discrete Fourier transforms of the tensors of one worker: by MKL's routines where they can be
called directly (`kernels/fft/mkl_fft.py`), otherwise by `torch.fft`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.fft.mkl_fft import is_same_memory, routine


def transform(
    out: Tensor, x: Tensor, axes: Sequence[int], *, inverse: bool, norm: str
) -> BoundCall:
    """Return a bound call that stores the transform of complex x over `axes` in out, which may be
    x itself."""
    scale = _scale(norm, inverse, math.prod([x.shape[d] for d in axes]))
    copies: list[BoundCall] = []
    source = x
    is_strided = all(out.stride(d) > 1 for d in axes)
    if is_strided and not is_same_memory(out, x):  # copy, then in place
        copies, source = [partial(out.copy_, x)], out
    if calls := routine(out, source, axes, inverse=inverse, scale=scale):
        return sequence(*copies, *calls)
    function = torch.fft.ifftn if inverse else torch.fft.fftn
    if is_same_memory(out, x):
        return lambda: out.copy_(function(x, dim=axes, norm=norm))
    return lambda: function(x, dim=axes, norm=norm, out=out)


def transform_of_real(out: Tensor, x: Tensor, axis: int, *, inverse: bool, norm: str) -> BoundCall:
    """Return a bound call that stores the first n // 2 + 1 coefficients of the transform of real x
    along an axis. Those of the inverse transform are their conjugates."""
    scale = _scale(norm, inverse, x.shape[axis])
    if calls := routine(out, x, (axis,), inverse=False, scale=scale):
        return sequence(*calls, out.imag.neg_) if inverse else sequence(*calls)
    function = torch.fft.ihfft if inverse else torch.fft.rfft
    return lambda: function(x, dim=axis, norm=norm, out=out)


def transform_to_real(out: Tensor, x: Tensor, axis: int, *, inverse: bool, norm: str) -> BoundCall:
    """Return a bound call that stores the real array whose first coefficients along an axis are
    x."""
    n = out.shape[axis]
    if inverse and (calls := routine(out, x, (axis,), inverse=True, scale=_scale(norm, True, n))):
        return sequence(*calls)
    function = torch.fft.irfft if inverse else torch.fft.hfft
    return lambda: function(x, n=n, dim=axis, norm=norm, out=out)


def _scale(norm: str, inverse: bool, size: int) -> float:
    """Return the factor of a normalization for this direction."""
    if norm == "ortho":
        return 1 / math.sqrt(size)
    return 1 / size if inverse == (norm == "backward") else 1.0
