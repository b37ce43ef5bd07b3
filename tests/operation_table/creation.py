"""Created arrays: constants, ranges and random numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import strategies as st

from operation_table.draws import ANY, REAL, REAL_FLOATS, Case, Draws, Row


def _full(draws: Draws) -> Case:
    return Case((draws.numbers(()),), {"shape": draws.shape(), "dtype": draws.dtype})


def _iota(draws: Draws) -> Case:
    shape = draws.shape(1)
    axis = draws.draw(st.integers(0, len(shape) - 1))
    return Case((), {"shape": shape, "dtype": draws.dtype, "axis": axis})


def _random(draws: Draws) -> Case:
    seed, stream = (torch.tensor(int(n)) for n in draws.random.integers(0, 1 << 40, 2))
    return Case((seed, stream), {"shape": draws.shape(), "dtype": draws.dtype})


def _permutation(draws: Draws) -> Case:
    seed, stream = (torch.tensor(int(n)) for n in draws.random.integers(0, 1 << 40, 2))
    shape = draws.shape(1, 1)
    below = shape[0] + int(draws.random.choice([0, 1, 100]))
    return Case((seed, stream), {"shape": shape, "dtype": draws.dtype, "below": below})


def _sampled(high: float, *more: float, low: float = 0.0) -> Callable[[Draws], Case]:
    """Numbers of a distribution, whose parameters are below these: numbers, or one an element."""

    def draw(draws: Draws) -> Case:
        case = _random(draws)
        shape = case.attributes["shape"]
        sizes = [shape if draws.draw(st.booleans()) else () for _ in (high, *more)]
        given = [
            draws.random.uniform(low, n, size) for n, size in zip((high, *more), sizes, strict=True)
        ]
        if more:  # numbers of trials, and probabilities
            bounds = (high, *more)
            given = [np.floor(x) if n > 1 else x for x, n in zip(given, bounds, strict=True)]
        parameters = [torch.from_numpy(np.asarray(x)) for x in given]
        return Case((*case.operands, *parameters), case.attributes)

    return draw


ROWS: dict[str, Row] = {
    "full": Row(_full, ANY, (0,)),
    "iota": Row(_iota, REAL),
    "random_uniform": Row(_random, REAL_FLOATS),
    "random_normal": Row(_random, REAL_FLOATS),
    "random_exponential": Row(_random, REAL_FLOATS),
    "random_gamma": Row(_sampled(3.0), REAL_FLOATS),
    "random_log_gamma": Row(_sampled(3.0), REAL_FLOATS),
    "random_poisson": Row(_sampled(30.0), ("int64",)),
    "random_binomial": Row(_sampled(60.0, 1.0), ("int64",)),
    "random_hypergeometric": Row(_sampled(60.0, 40.0, 100.0), ("int64",)),
    "random_zipf": Row(_sampled(12.0, low=6.0), ("int64",)),
    "random_vonmises_cosine": Row(_sampled(9.0), REAL_FLOATS),
    "random_bits": Row(_random, ("int64",)),
    "random_permutation": Row(_permutation, ("int64",)),
}
