"""Nested lists, tuples and ranges of Python numbers as operands.

Like a single number, they take the type of the arrays that they are combined with: their values are
converted once, from Python numbers to the type of the result. Lists with other elements (NumPy
scalars, arrays) are converted to arrays as NumPy converts them, and have their own type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from magmath.core.dtypes import PYTHON_NUMBERS, DType, side_of_range

LISTS = (list, tuple, range)


@final
@dataclass
class NumberList:
    """Python numbers, nested, and the widest class of numbers among them."""

    values: Sequence[Any]
    kind: type

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        """The smallest and the largest of its integers; 0 and 0 if it is empty."""
        values = np.asarray(self.values)
        return (values.min(), values.max()) if values.size else (0, 0)

    @cached_property
    def is_empty(self) -> bool:
        """True for lists of any depth without a number, which have the type of any array."""
        return not np.size(self.values)

    def is_representable_as(self, dtype: DType) -> bool:
        """Return True if an integer type can represent all of its integers."""
        return not any(side_of_range(int(bound), dtype) for bound in self.bounds)

    def within(self, dtype: DType) -> NumberList:
        """Return those of its integers, as a flat list, that an integer type can represent."""
        integers = np.asarray(self.values, object).ravel()
        return NumberList([n for n in integers if not side_of_range(int(n), dtype)], self.kind)


def number_list(value: Sequence[Any]) -> NumberList | None:
    """Return the list as an operand, or None if it has elements other than Python numbers.

    An empty list counts as a list of floats, as in NumPy.
    """
    classes = _classes_in(value)
    if not all(issubclass(c, PYTHON_NUMBERS) and not issubclass(c, np.generic) for c in classes):
        return None
    bases = [base for base in PYTHON_NUMBERS if any(issubclass(c, base) for c in classes)]
    if bases == [bool, int]:  # bool is a subclass of int
        bases = [int] if any(not issubclass(c, bool) for c in classes) else [bool]
    return NumberList(value, bases[-1] if bases else float)


def is_number_table(value: Sequence[Any]) -> bool:
    """Return True for nested lists of numbers, of Python or NumPy, that are not
    empty."""
    numbers = (*PYTHON_NUMBERS, np.generic)
    return bool(value) and all(issubclass(c, numbers) for c in _classes_in(value))


def has_elements_of(value: Any, kind: type) -> bool:
    """Return True for a list with elements, perhaps in lists inside, of a class."""
    return isinstance(value, LISTS) and any(issubclass(c, kind) for c in _classes_in(value))


def _classes_in(values: Sequence[Any]) -> set[type]:
    """Return the classes of the elements of nested lists."""
    classes = set(map(type, values))
    nested = {c for c in classes if issubclass(c, LISTS)}
    if nested:
        classes = (classes - nested).union(
            *[_classes_in(value) for value in values if isinstance(value, LISTS)]
        )
    return classes


def is_number(value: Any) -> bool:
    """Return True for a Python number, which takes the type of arrays; False for NumPy scalars."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)
