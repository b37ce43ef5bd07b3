"""NumPy's universal function of an element-wise operation, as its record names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final


@final
class NumpyUfunc(NamedTuple):
    """NumPy's function for an operation, called with the operands and the result.

    It is faster than torch's on results of up to `max_elements`, where the call takes longer than
    the arithmetic. With `avx512`, it is faster on any number of elements that one thread computes,
    on a processor with these instructions. It has the meaning of the operation for types of these
    `kinds`.
    """

    function: Callable[..., Any]
    max_elements: int
    avx512: bool = False
    kinds: tuple[str, ...] = ("bool", "int", "uint", "float", "complex")
