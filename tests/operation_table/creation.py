"""Arrays made of nothing: constants, ranges and random numbers."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from operation_table.dice import ANY, REAL, REAL_FLOATS, Case, Dice, Row


def _full(dice: Dice) -> Case:
    return Case((dice.numbers(()),), {"shape": dice.shape(), "dtype": dice.dtype})


def _iota(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    return Case((), {"shape": shape, "dtype": dice.dtype, "axis": axis})


def _random(dice: Dice) -> Case:
    seed, stream = (torch.tensor(int(n)) for n in dice.random.integers(0, 1 << 40, 2))
    return Case((seed, stream), {"shape": dice.shape(), "dtype": dice.dtype})


def _permutation(dice: Dice) -> Case:
    seed, stream = (torch.tensor(int(n)) for n in dice.random.integers(0, 1 << 40, 2))
    return Case((seed, stream), {"shape": dice.shape(1, 1), "dtype": dice.dtype})


ROWS: dict[str, Row] = {
    "full": Row(_full, ANY, (0,)),
    "iota": Row(_iota, REAL),
    "random_uniform": Row(_random, REAL_FLOATS),
    "random_normal": Row(_random, REAL_FLOATS),
    "random_bits": Row(_random, ("int64",)),
    "random_permutation": Row(_permutation, ("int64",)),
}
