"""The measured speeds of single operations.

An operation takes a fixed time, and a time for each unit of its work, which depends on whether its
arrays are in a cache or in memory. The work is bytes read and written, or arithmetic for operations
whose arithmetic grows faster than their arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

CACHED_BYTES: Final = 5e5
"""Bytes up to which the arrays of an operation are in a cache, as in the calibration."""
COUNTED_IN_FLOPS: Final = frozenset(
    (
        "sort", "argsort", "searchsorted", "fft_c2c", "fft_r2c", "fft_c2r",
        "lu", "lu_solve", "cholesky", "eigh", "qr", "svd", "triangular_solve",
    )
)  # fmt: skip
"""Operations whose unit of work is a floating point operation; for all others it is a byte."""


@dataclass(frozen=True)
class OperationRate:
    """The speed of an operation on a number of threads.

    fixed      seconds of a call on few elements, in addition to those of any call
    cached     seconds per unit of work while the arrays are in a cache
    streaming  seconds per unit of work while they are in memory
    """

    name: str
    threads: int
    fixed: float
    cached: float
    streaming: float

    def seconds(self, flops: float, nbytes: float, cache: float) -> float:
        """Return the seconds of a call, beyond those of any call.

        cache  bytes of the last cache, beyond which arrays are in memory. In between, the speed is
               interpolated by the logarithm of the bytes.
        """
        work = flops if self.name in COUNTED_IN_FLOPS else nbytes
        if nbytes <= CACHED_BYTES or cache <= CACHED_BYTES:
            share = float(nbytes > max(cache, CACHED_BYTES))
        else:
            share = min(1.0, log(nbytes / CACHED_BYTES) / log(cache / CACHED_BYTES))
        return self.fixed + work * (self.cached + share * (self.streaming - self.cached))
