"""NumPy's universal function of an element-wise operation, as its record names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, final


@final
class NumpyUfunc(NamedTuple):
    """NumPy's function for an operation, called with the operands and the result.

    It is faster than torch's on results of up to `max_elements`, where the call takes longer than
    the arithmetic. On a processor with AVX2 or AVX-512, torch's function takes `avx2` or `avx512`
    times as long on one thread, so NumPy's is faster than torch's on fewer threads than that. It
    has the meaning of the operation for types of these `kinds`.
    """

    function: Callable[..., Any]
    max_elements: int
    avx2: float
    avx512: float
    kinds: tuple[str, ...]
