"""The state of mixed precision: the half type in which modules compute now, if there is one.

`nn.precision` sets it, calls of modules follow it, and compiled functions are traced again for
another type. It is in this package because arrays and transformations read it too.
"""

from __future__ import annotations

from typing import NamedTuple, final

from magmath.core.dtypes import DType
from magmath.core.scoped_value import ScopedValue


@final
class PrecisionState(NamedTuple):
    """The half types of mixed precision; all are None outside of `nn.precision`.

    compute      the type in which modules compute
    read         the type in which parameters are read at this line: that of `compute` within calls
                 of modules, and None in modules that compute in float32
    is_in_module True within the call of a module
    """

    compute: DType | None = None
    read: DType | None = None
    is_in_module: bool = False


PRECISION = ScopedValue(PrecisionState())
"""The state of the present thread, on which traces depend."""
