"""Created arrays: constants, ranges and random numbers."""

from __future__ import annotations

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
    return Case((seed, stream), {"shape": draws.shape(1, 1), "dtype": draws.dtype})


ROWS: dict[str, Row] = {
    "full": Row(_full, ANY, (0,)),
    "iota": Row(_iota, REAL),
    "random_uniform": Row(_random, REAL_FLOATS),
    "random_normal": Row(_random, REAL_FLOATS),
    "random_bits": Row(_random, ("int64",)),
    "random_permutation": Row(_permutation, ("int64",)),
}
