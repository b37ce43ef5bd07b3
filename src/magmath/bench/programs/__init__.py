"""Ordinary NumPy programs, one in each file: `data(n)` draws arrays, `main(np, *arrays)` computes.

The same text of `main` runs with NumPy and with magmath as `np`. `SIZES` are the values of n for
about 100 KB, 10 MB and 400 MB. `with_scipy` and `with_numexpr` are the program as a person writes
it with these libraries, where that is usual. `JAX` and `DASK` say that `main` runs with these
libraries, which cannot write into an array. These files import nothing of magmath but each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

NAMES = (
    "heat_stencil",
    "conjugate_gradients",
    "option_pricing",
    "kmeans",
    "gaussian_mixture",
    "pca",
    "logistic_regression",
    "logistic_by_grad",
    "ridge_cross_validation",
    "heat_fft",
    "game_of_life",
    "image_filter",
    "group_statistics",
    "n_body",
    "floyd_warshall",
    "gaussian_process",
    "time_series",
    "page_rank",
)
SIZES = ("small", "middle", "large")


def load(name: str) -> Any:
    """Return the module of a program."""
    return import_module(f"{__name__}.{name}")


def variant(module: Any, name: str) -> Any:
    """Return the function of a program for a library, or None: `main`, `with_scipy`, `JAX`, ….

    A flag that is true stands for `main`.
    """
    found = getattr(module, name, None)
    return module.main if found is True else found


def numbers(result: Any) -> Iterator[Any]:
    """Yield the arrays of a program's result as NumPy arrays."""
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from numbers(part)
    else:
        import numpy  # loaded on first use: `magmath --help` lists the benchmarks

        yield numpy.asarray(result)


def difference(ours: Any, theirs: Any) -> float:
    """Return the largest difference of two results, relative to the largest value of each array.

    Infinite where shapes differ, or where one is infinite or undefined and the other is not.
    """
    pairs = list(zip(numbers(ours), numbers(theirs), strict=True))
    return max(_difference(*pair) for pair in pairs)


def _difference(ours: Any, theirs: Any) -> float:
    if ours.shape != theirs.shape:
        return numpy.inf
    finite = numpy.isfinite(theirs)
    if not numpy.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return numpy.inf
    gaps = numpy.abs(ours[finite].astype(float) - theirs[finite].astype(float))
    scale = numpy.abs(theirs[finite]).max(initial=1e-300)
    found = gaps.max(initial=0.0) / scale
    return float(found) if numpy.isfinite(found) else numpy.inf
