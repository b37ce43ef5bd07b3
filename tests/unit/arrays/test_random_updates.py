"""Random programs that read, write and differentiate arrays of several sizes, beside NumPy: small
ones in this process, which sends them to the workers, and large ones in the memory of the workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current

ROWS = [3, 20, 60, 500]
COLUMNS = [120, 400]


class _State(NamedTuple):
    """Three matrices, a vector and results that were kept, of magmath and of NumPy."""

    arrays: list[Any]
    known: list[Any]
    kept: list[tuple[Any, Any]]
    draw: np.random.Generator

    def both(self, step: Callable[[list[Any], Any], None]) -> None:
        """Do a step with the arrays of both libraries."""
        step(self.arrays, mm)
        step(self.known, np)

    def place(self, matrix: int) -> tuple[int, int]:
        """Return a row and a column of a matrix."""
        rows, columns = self.known[matrix].shape
        return int(self.draw.integers(rows)), int(self.draw.integers(columns))


def _move_row(s: _State, i: int, j: int) -> None:
    (row, _), (other, _) = s.place(i), s.place(j)

    def step(x: list[Any], xp: Any) -> None:
        x[i][row] = x[j][other]

    s.both(step)


def _write_part(s: _State, i: int, j: int) -> None:
    row, column = s.place(i)
    kind = s.draw.integers(4)

    def step(x: list[Any], xp: Any) -> None:
        if kind == 0:
            x[i][row, column] = 1.5
        elif kind == 1:
            x[i][row] += 0.25
        elif kind == 2:
            x[i][row : row + 3, :5] = 2.0
        else:
            x[i][:, column] = x[i][:, column * 7 % x[i].shape[1]] * 0.5

    s.both(step)


def _write_view(s: _State, i: int, j: int) -> None:
    row, _ = s.place(i)
    view, known = s.arrays[i][row], s.known[i][row]
    view *= 0.5
    known *= 0.5
    s.kept.append((view, known))


def _update_whole(s: _State, i: int, j: int) -> None:
    def step(x: list[Any], xp: Any) -> None:
        x[i] *= 0.9
        x[3] = xp.mean(x[j] * x[3], axis=0)
        x[j] = x[j] - xp.mean(x[j], axis=0) * 0.1 + x[3] * 0.01

    s.both(step)


def _read(s: _State, i: int, j: int) -> None:
    result = float(mm.sum(s.arrays[i] @ s.arrays[j].T))
    assert result == pytest.approx((s.known[i] @ s.known[j].T).sum(), rel=1e-8, abs=1e-5)


def _keep(s: _State, i: int, j: int) -> None:
    s.kept.append((s.arrays[i].copy(), s.known[i].copy()))
    s.kept.append((s.arrays[j] * 2 + s.arrays[3], s.known[j] * 2 + s.known[3]))


def _descend(s: _State, i: int, j: int) -> None:
    """Subtract the gradient of the mean of (x·v)² / (std(y) + 1) with respect to v."""

    def loss(v: mm.Array, x: mm.Array, y: mm.Array) -> mm.Array:
        return mm.mean((x @ v) ** 2) / (mm.std(y) + 1)

    x, v, y = s.known[i], s.known[3], s.known[j]
    s.arrays[3] = s.arrays[3] - 0.01 * mm.grad(loss)(s.arrays[3], s.arrays[i], s.arrays[j])
    s.known[3] = v - 0.01 * 2 * ((x @ v) @ x) / len(x) / (y.std() + 1)


STEPS = [_move_row, _write_part, _write_view, _update_whole, _read, _read, _keep, _descend]


@pytest.mark.parametrize("kind", [("inline", 1), ("eager", 2)], ids=lambda kind: str(kind[0]))
@given(seed=st.integers(0, 1 << 30))
@settings(max_examples=30)
def test_random_updates_are_those_of_numpy(kind: tuple[str, int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    columns = int(draw.choice(COLUMNS))
    known = [draw.normal(size=(int(rows), columns)) for rows in draw.choice(ROWS, 3)]
    known.append(draw.normal(size=columns))
    with current(*kind):
        state = _State([mm.asarray(x) for x in known], known, [], draw)
        for k in draw.integers(len(STEPS), size=draw.integers(6, 24)):
            STEPS[k](state, *draw.integers(3, size=2).tolist())
        for actual, expected in [*zip(state.arrays, state.known, strict=True), *state.kept]:
            np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-8, atol=1e-9)
