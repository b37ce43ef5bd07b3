"""Fourier transforms."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from operation_table.draws import COMPLEX, Case, Draws, Row


def _norm(draws: Draws) -> dict[str, Any]:
    norm = draws.draw(st.sampled_from(["backward", "ortho", "forward"]))
    return {"inverse": draws.draw(st.booleans()), "norm": norm}


def _fft(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 7))
    axes = tuple(sorted(draws.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    return Case((draws.numbers(shape, "count"),), {"axes": axes, **_norm(draws)})


def _fft_twiddle(draws: Draws) -> Case:
    shape = draws.shape(2, extents=(1, 6))
    attributes = {
        "axis": draws.draw(st.integers(0, len(shape) - 2)),
        "n": draws.draw(st.integers(1, 40)),
        "inverse": draws.draw(st.booleans()),
    }
    return Case((draws.numbers(shape, "count"),), attributes)


def _fft_of_real(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 7))
    axis = draws.draw(st.integers(0, len(shape) - 1))
    return Case((draws.numbers(shape, "count"),), {"axis": axis, **_norm(draws)})


def _fft_to_real(draws: Draws) -> Case:
    shape = draws.shape(1, extents=(1, 5))
    axis = draws.draw(st.integers(0, len(shape) - 1))
    signals = [n for n in (2 * shape[axis] - 2, 2 * shape[axis] - 1) if n]
    attributes = {"axis": axis, "n": draws.draw(st.sampled_from(signals)), **_norm(draws)}
    return Case((draws.numbers(shape, "count"),), attributes)


ROWS: dict[str, Row] = {
    "fft_c2c": Row(_fft, COMPLEX),
    "fft_twiddle": Row(_fft_twiddle, COMPLEX),
    "fft_r2c": Row(_fft_of_real, ("float32", "float64")),
    "fft_c2r": Row(_fft_to_real, COMPLEX),
}
