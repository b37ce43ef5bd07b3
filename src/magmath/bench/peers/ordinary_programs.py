"""The ordinary programs with NumPy as they are written, with SciPy, numexpr, JAX and Dask."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from magmath.bench import numpy_programs
from magmath.bench.numpy_programs.agreement import numbers
from magmath.bench.peers.repeated import RepeatedContestant, Work, repeat_call
from magmath.bench.peers.service import Contestant, core_count

WARM_UP_SECONDS = 3.0
"""Seconds for which every system repeats a program before it is measured."""
Run = Callable[[Any, tuple[Any, ...]], Callable[[], Any]]


def operands(case: dict[str, Any]) -> tuple[Any, tuple[Any, ...]]:
    """Return the module of the case's program, and its data as NumPy arrays."""
    module = numpy_programs.load(case["program"])
    return module, module.data(module.SIZES[numpy_programs.SIZES.index(case["size"])])


def check(case: dict[str, Any], result: Any) -> float:
    """Return a number that is compared between systems: the mean size of the result's numbers."""
    arrays = [np.abs(array[np.isfinite(array)]) for array in numbers(result)]
    return float(np.mean([array.mean(dtype=np.float64) for array in arrays]))


def _contestant(versions: dict[str, str], variant: str, run: Run) -> Contestant:
    def prepare(case: dict[str, Any]) -> Work:
        module, arrays = operands(case)
        return repeat_call(run(numpy_programs.variant(module, variant), arrays))

    return RepeatedContestant(versions, prepare, check, WARM_UP_SECONDS)


def _with_numpy(function: Any, arrays: tuple[Any, ...]) -> Callable[[], Any]:
    return lambda: function(np, *arrays)


def numpy() -> Contestant:
    """NumPy as it is written."""
    return _contestant({"numpy": np.__version__}, "main", _with_numpy)


def scipy() -> Contestant:
    """NumPy and SciPy."""
    import scipy

    return _contestant({"scipy": scipy.__version__}, "with_scipy", _with_numpy)


def numexpr() -> Contestant:
    """NumPy and numexpr with a thread for each core."""
    import numexpr

    numexpr.set_num_threads(core_count())
    return _contestant({"numexpr": numexpr.__version__}, "with_numexpr", _with_numpy)


def jax() -> Contestant:
    """Return the whole program under `jax.jit`, in float64."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def run(function: Any, arrays: tuple[Any, ...]) -> Callable[[], Any]:
        compiled = jax.jit(lambda *operands: function(jnp, *operands))
        operands = [jnp.asarray(array) for array in arrays]
        return lambda: jax.block_until_ready(compiled(*operands))

    return _contestant({"jax": jax.__version__}, "JAX", run)


def dask() -> Contestant:
    """Dask with its threads, on arrays in one chunk for each core along their longest dimension."""
    import dask
    import dask.array as da

    cores = core_count()

    def chunked(array: Any) -> Any:
        longest = max(range(array.ndim), key=lambda axis: array.shape[axis])
        return da.from_array(array, chunks=tuple(
            -(-n // cores) if axis == longest and array.size > 1000 else n
            for axis, n in enumerate(array.shape)
        ))  # fmt: skip

    def run(function: Any, arrays: tuple[Any, ...]) -> Callable[[], Any]:
        operands = [chunked(array) for array in arrays]
        return lambda: dask.compute(function(da, *operands))[0]

    return _contestant({"dask": dask.__version__}, "DASK", run)
