"""Ordinary NumPy programs, one in each file: `data(n)` draws arrays, `main(np, *arrays)` computes.

The same text of `main` runs with NumPy and with magmath as `np`. `SIZES` are the values of n for
about 100 KB, 10 MB and 400 MB. `with_scipy` and `with_numexpr` are the program as a person writes
it with these libraries, where that is usual. `JAX` and `DASK` say that `main` runs with these
libraries, which cannot write into an array. These files import nothing of magmath but each other,
and this one loads nothing else: `magmath --help` lists the benchmarks.
"""

from __future__ import annotations

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
    function = getattr(module, name, None)
    return module.main if function is True else function
