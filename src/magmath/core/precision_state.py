"""The state of mixed precision: the half type in which modules compute now, if there is one.

`nn.precision` sets it, calls of modules follow it, and compiled functions are traced again for
another type. It is in this package because arrays and transformations read it too.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from magmath.core.dtypes import DType


@dataclass
class PrecisionState:
    """The half types of mixed precision; all are None outside of `nn.precision`.

    compute   the type in which modules compute
    read      the type in which parameters are read at this line: that of `compute` within calls of
              modules, and None in modules that compute in float32
    depth     the number of calls of modules in progress
    """

    compute: DType | None = None
    read: DType | None = None
    depth: int = 0

    @property
    def key(self) -> Hashable:
        """The state on which traces depend."""
        return self.compute, self.read, self.depth > 0


PRECISION = PrecisionState()
