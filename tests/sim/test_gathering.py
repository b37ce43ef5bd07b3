"""No operation gathers a large array that is split along the axis of the operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.ops import creation
from magmath.program.instructions import Call, Program, Redistribute

N, SIDE = 1_000_000, 1000
ROWS, COLUMNS = mm.Layout.split(0), mm.Layout.split(1)


def _numbers(shape: tuple[int, ...] = (N,), layout: Any = ROWS, dtype: str = "float32") -> mm.Array:
    values = np.random.default_rng(0).integers(-500, 500, shape).astype(dtype)
    return mm.asarray(values, layout=layout)


def _square(layout: Any = ROWS, dtype: str = "float32") -> mm.Array:
    return _numbers((SIDE, SIDE), layout, dtype)


def _positions(count: int = N, below: int = N) -> mm.Array:
    values = np.random.default_rng(1).integers(0, below, count)
    return mm.asarray(values, layout=ROWS)


def _assigned() -> mm.Array:
    x = _numbers()
    x[_positions()] = 1.0
    return x


def _masked() -> mm.Array:
    x = _numbers()
    x[x > 0] = 0.0
    return x


# For each public function that works along an axis, an expression of an array split along it.
EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "sort": lambda: mm.sort(_numbers()),
    "sort (axis of a matrix)": lambda: mm.sort(_square(), axis=0),
    "sort (one column)": lambda: mm.sort(_numbers((N, 1)), axis=0),
    "sort (few rows)": lambda: mm.sort(_numbers((3, N // 3), COLUMNS), axis=1),
    "argsort (few rows)": lambda: mm.argsort(_numbers((2, N // 2), COLUMNS), axis=1),
    "argsort": lambda: mm.argsort(_numbers()),
    "cumulative_sum": lambda: mm.cumulative_sum(_numbers(), include_initial=True),
    "cumulative_prod": lambda: mm.cumulative_prod(_square(COLUMNS), axis=1),
    "argmax": lambda: mm.argmax(_numbers()),
    "argmin": lambda: mm.argmin(_square(), axis=0),
    "sum": lambda: mm.sum(_square(), axis=0),
    "mean": lambda: mm.mean(_numbers()),
    "var": lambda: mm.var(_square(), axis=0),
    "max": lambda: mm.max(_numbers()),
    "any": lambda: mm.any(_numbers() > 0),
    "count_nonzero": lambda: mm.count_nonzero(_numbers()),
    "diff": lambda: mm.diff(_numbers(), prepend=mm.zeros(1, dtype=mm.float32)),
    "roll": lambda: mm.roll(_numbers(), 3),
    "roll (a matrix as flat)": lambda: mm.roll(_square(), 3),
    "flip": lambda: mm.flip(_numbers()),
    "concat": lambda: mm.concat([_numbers(), _numbers((N // 3,))]),
    "stack": lambda: mm.stack([_numbers(), _numbers()]),
    "unstack": lambda: mm.unstack(_numbers((4, N // 4), COLUMNS))[1],
    "repeat": lambda: mm.repeat(_numbers(), 3),
    "repeat (by counts)": lambda: mm.repeat(_numbers(), _positions(N, 3)),
    "tile": lambda: mm.tile(_numbers(), (3,)),
    "nonzero": lambda: mm.nonzero(_square(COLUMNS) > 0)[1],
    "x[mask]": lambda: (lambda x: x[x > 0])(_numbers()),
    "x[mask] = y": _masked,
    "x[a:b:c]": lambda: _numbers()[100:-100:3],
    "x[indices]": lambda: _numbers()[_positions()],
    "x[indices] = y": _assigned,
    "take": lambda: mm.take(_numbers(), _positions()),
    "take (few)": lambda: mm.take(_numbers(), _positions(9)),
    "take_along_axis": lambda: mm.take_along_axis(_numbers(), _positions(), axis=0),
    "searchsorted": lambda: mm.searchsorted(_numbers(), _numbers()),
    "searchsorted (in few)": lambda: mm.searchsorted(_numbers((99,)), _numbers()),
    "isin": lambda: mm.isin(_numbers(), _numbers()),
    "isin (complex)": lambda: mm.isin(_numbers(dtype="complex64"), _numbers(dtype="complex64")),
    "unique_inverse (complex)": lambda: mm.unique_inverse(_numbers(dtype="complex64"))[1],
    "isin (few)": lambda: mm.isin(_numbers(), _numbers((99,))),
    "unique_values": lambda: mm.unique_values(_numbers()),
    "unique_counts": lambda: mm.unique_counts(_numbers())[1],
    "unique_inverse": lambda: mm.unique_inverse(_numbers())[1],
    "unique_all": lambda: mm.unique_all(_numbers())[1],
    "reshape": lambda: mm.reshape(_square(COLUMNS), (-1,)),
    "reshape (rows split otherwise)": lambda: mm.reshape(_numbers((1500, 1000)), (1000, 1500)),
    "permute_dims": lambda: mm.permute_dims(_square(), (1, 0)),
    "matmul": lambda: _square() @ _numbers((SIDE,)),
    "vecdot": lambda: mm.vecdot(_numbers(), _numbers()),
    "softmax": lambda: mm.softmax(_numbers()),
    "fft.fft": lambda: mm.fft.fft(_numbers(dtype="complex64")),
    "fft.rfft": lambda: mm.fft.rfft(_numbers()),
    "fft.irfft": lambda: mm.fft.irfft(_numbers((N // 2 + 1,), dtype="complex64")),
    "fft.fft (a prime length)": lambda: mm.fft.fft(_numbers((1_000_003,), dtype="complex64")),
    "fft.fftshift": lambda: mm.fft.fftshift(_numbers()),
    "signal.convolve": lambda: mm.signal.convolve(_numbers(), _numbers((9,))),
    "linalg.trace": lambda: mm.linalg.trace(_square()),
    "linalg.trace (of a part)": lambda: mm.linalg.trace(_square()[5:, 3:]),
    "linalg.diagonal": lambda: mm.linalg.diagonal(_square(COLUMNS), offset=5),
    "linalg.diagonal (below)": lambda: mm.linalg.diagonal(_square(), offset=-5),
    "linalg.matrix_norm": lambda: mm.linalg.matrix_norm(_square(), ord=1),
    "linalg.cross": lambda: mm.linalg.cross(_numbers((N, 3)), _numbers((N, 3))),
    "linalg.outer": lambda: mm.linalg.outer(_numbers((SIDE,)), _numbers((SIDE,))),
    "einsum (a diagonal)": lambda: mm.einsum("ii->i", _square()),
    "tril": lambda: mm.tril(_square(COLUMNS)),
    "fft.fftn": lambda: mm.fft.fftn(_square(dtype="complex64")),
    "signal.correlate (by fft)": lambda: mm.signal.correlate(
        _numbers(), _numbers((N // 4,)), method="fft"
    ),
    "linalg.vector_norm": lambda: mm.linalg.vector_norm(_numbers()),
}


@contextmanager
def _programs() -> Iterator[list[Program]]:
    """The programs that run meanwhile."""
    engine = session.engine()
    result: list[Program] = []
    former, engine.profiler = engine.profiler, lambda run: result.append(run.program)
    try:
        yield result
    finally:
        engine.profiler = former


def _gathered(program: Program) -> list[str]:
    """The instructions after which a worker, or a host in total, stores the whole of an array
    that is half as large as the operands; but for what is made without them, like zeros."""
    result = []
    for instruction in program.instructions:
        if isinstance(instruction, Call | Redistribute):
            out = instruction.out if isinstance(instruction, Call) else instruction.target
            layout = program.slots[out].layout
            made = isinstance(instruction, Call) and instruction.operation in creation.OPERATIONS
            if layout.size >= N // 2 and layout.max_local_size > 0.6 * layout.size and not made:
                result.append(str(layout))
    return result


def _all_is_large() -> None:
    """Operations get as much memory for moved operands as they would for hundreds of times this."""
    engine = session.engine()
    engine.environment = replace(engine.environment, max_moved_bytes=N // 8)


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_no_operation_gathers_a_large_array(kind: str) -> None:
    with current(kind, 4) as pool:
        _all_is_large()
        try:
            for name, expression in EXPRESSIONS.items():
                with _programs() as programs:
                    mm.evaluate(expression())
                assert not any(_gathered(program) for program in programs), name
        finally:
            pool.close()  # other tests need its memory, and an engine without this setting
