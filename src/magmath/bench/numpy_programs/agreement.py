"""The comparison of the results of a program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy


def numbers(result: Any) -> Iterator[Any]:
    """Yield the arrays of a program's result as NumPy arrays."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from numbers(part)
    else:
        yield numpy.asarray(result)


def difference(result: Any, reference: Any) -> float:
    """Return the largest difference of two results, relative to the largest value of each array.

    Infinite where shapes differ, or where one is infinite or undefined and the other is not.
    """
    pairs = list(zip(numbers(result), numbers(reference), strict=True))
    return max(_difference(*pair) for pair in pairs)


def _difference(result: Any, reference: Any) -> float:
    if result.shape != reference.shape:
        return numpy.inf
    finite = numpy.isfinite(reference)
    if not numpy.array_equal(result[~finite], reference[~finite], equal_nan=True):
        return numpy.inf
    gaps = numpy.abs(result[finite].astype(float) - reference[finite].astype(float))
    scale = numpy.abs(reference[finite]).max(initial=1e-300)
    largest = gaps.max(initial=0.0) / scale
    return float(largest) if numpy.isfinite(largest) else numpy.inf
