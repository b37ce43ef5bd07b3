"""Fourier transforms."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from operation_table.dice import COMPLEX, Case, Dice, Row


def _norm(dice: Dice) -> dict[str, Any]:
    norm = dice.draw(st.sampled_from(["backward", "ortho", "forward"]))
    return {"inverse": dice.draw(st.booleans()), "norm": norm}


def _fft(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 7))
    axes = tuple(sorted(dice.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    return Case((dice.numbers(shape, "count"),), {"axes": axes, **_norm(dice)})


def _fft_twiddle(dice: Dice) -> Case:
    shape = dice.shape(2, extents=(1, 6))
    attributes = {
        "axis": dice.draw(st.integers(0, len(shape) - 2)),
        "n": dice.draw(st.integers(1, 40)),
        "inverse": dice.draw(st.booleans()),
    }
    return Case((dice.numbers(shape, "count"),), attributes)


def _fft_of_real(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 7))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    return Case((dice.numbers(shape, "count"),), {"axis": axis, **_norm(dice)})


def _fft_to_real(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 5))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    signals = [n for n in (2 * shape[axis] - 2, 2 * shape[axis] - 1) if n]
    attributes = {"axis": axis, "n": dice.draw(st.sampled_from(signals)), **_norm(dice)}
    return Case((dice.numbers(shape, "count"),), attributes)


ROWS: dict[str, Row] = {
    "fft_c2c": Row(_fft, COMPLEX),
    "fft_twiddle": Row(_fft_twiddle, COMPLEX),
    "fft_r2c": Row(_fft_of_real, ("float32", "float64")),
    "fft_c2r": Row(_fft_to_real, COMPLEX),
}
