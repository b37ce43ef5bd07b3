"""The state of mixed precision: the half type in which modules compute now, if there is one.

`nn.precision` sets it, calls of modules follow it, and compiled functions are traced again for
another type. It is in this package because arrays and transformations read it too.
"""

from __future__ import annotations

from collections.abc import Hashable
from threading import local
from typing import final

from magmath.core.dtypes import DType


@final
class PrecisionState(local):
    """The half types of mixed precision in the current thread; all are None outside of
    `nn.precision`.

    compute   the type in which modules compute
    read      the type in which parameters are read at this line: that of `compute` within calls of
              modules, and None in modules that compute in float32
    depth     the number of calls of modules in progress
    key       the state on which traces depend; an attribute, as each call of a compiled function
              reads it
    """

    def __init__(self) -> None:
        self.set(None, None, 0)

    def set(self, compute: DType | None, read: DType | None, depth: int) -> None:
        """Set the whole state."""
        self.compute, self.read, self.depth = compute, read, depth
        self.key: Hashable = (compute, read, depth > 0)


PRECISION = PrecisionState()
