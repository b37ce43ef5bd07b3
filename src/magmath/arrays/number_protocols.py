"""Python's protocols of numbers, for arrays of one element: `float(x)`, `int(x)`, `if x`, `y[x]`,
`round` and `format`."""

from __future__ import annotations

import math
import sys
from typing import Any

from magmath.arrays.indexing.element_reads import element_of
from magmath.arrays.lazy_array import LazyArray
from magmath.arrays.leaf_values import depend_on_value
from magmath.arrays.temporary_references import TEMPORARY_NUMBER
from magmath.core.call_effects import NUMBERS_READ
from magmath.engine.called_function import called_function
from magmath.engine.traces import tracing
from magmath.errors import ScalarError

NAMED = sys.maxsize
"""A number of references that only an array with a name has."""


class NumberProtocols(LazyArray):
    """Conversions to Python's numbers, each of which evaluates the array."""

    __slots__ = ()

    def _scalar(self, kind: str, references: int = NAMED) -> Any:
        """Return the value of a 0-d array as a number; that of an array without a name, which has
        few references, is not kept."""
        if self.size != 1 or (self.ndim and kind != "bool"):
            reduced = "mm.any(x) or mm.all(x)" if kind == "bool" else "mm.sum(x)"
            function = called_function(3)
            if function is not None:
                raise ScalarError(
                    f"{function}: an argument that is one value (a number, a truth value or a "
                    f"name) was given an array of shape {self.shape}; give one element, or pass "
                    f"the array as the argument that it is for"
                )
            raise ScalarError(
                f"{kind}(): needs a 0-d array, this one has shape {self.shape}; take one element, "
                f"or reduce them, as {reduced} does"
            )
        if references <= TEMPORARY_NUMBER[kind] and self._leaf is None:
            value = element_of(self._node)
            if value is not None:
                if tracing.current() is not None:
                    depend_on_value(self._node)
                return value
        number = self.numpy().item()
        if NUMBERS_READ.value is not None:
            NUMBERS_READ.value.append((self._leaf, number))
        return number

    def __float__(self) -> float:
        references = sys.getrefcount(self)
        return float(self._scalar("float", references))

    def __int__(self) -> int:
        references = sys.getrefcount(self)
        return int(self._scalar("int", references))

    def __round__(self, digits: int | None = None) -> int | float:
        """Return the value of a 0-d array as a number that is rounded as `round` does."""
        rounded: int | float = round(self._scalar("item"), digits)
        return rounded

    def __trunc__(self) -> int:
        truncated: int = math.trunc(self._scalar("item"))
        return truncated

    def __complex__(self) -> complex:
        references = sys.getrefcount(self)
        return complex(self._scalar("complex", references))

    def __bool__(self) -> bool:
        references = sys.getrefcount(self)
        return bool(self._scalar("bool", references))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(
                f"only integer arrays can be an index, this one is {self.dtype}"
                "; convert it with int(x) or mm.astype(x, mm.int64)"
            )
        references = sys.getrefcount(self)
        return int(self._scalar("index", references))

    def __format__(self, specification: str) -> str:
        if not specification:
            return str(self)
        if self.size != 1:
            first = f"x[{', '.join('0' * self.ndim)}]"
            raise ScalarError(
                f"format: {specification!r} is for one number, this array has shape {self.shape}; "
                f"format one of its elements, as f'{{{first}:{specification}}}' does for an array "
                f"x of this shape, or round all of them: mm.round(x, 2)"
            )
        return format(self.numpy().item(), specification)
