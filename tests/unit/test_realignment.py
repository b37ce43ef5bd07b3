"""Memory realignment against its definition, for all shapes and any order of the groups."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from magmath.errors import ShapeError
from magmath.kernels import realignment
from magmath.kernels.parallel_region import run_on_threads
from magmath.kernels.realignment import (
    GROUP,
    JOB,
    bind_shift_left,
    bind_shift_right,
    shift_left,
    shift_right,
)
from magmath.kernels.realignment_groups import RowGroups

LARGE = [(1, 100_000), (100_000, 1), (3000, 700), (700, 3000), (200_000, 3), (5, 300_001)]
ORDERS = np.random.default_rng(0)


def check(matrix: torch.Tensor, value: float = 1) -> None:
    """Both transforms, in a buffer whose other elements are garbage."""
    rows, columns = matrix.shape
    buffer = torch.full((rows * (columns + 1),), 7, dtype=matrix.dtype)
    buffer[: rows * columns] = matrix.reshape(-1)
    shift_right(buffer, rows, columns, value)
    wide = buffer.view(rows, columns + 1)
    assert torch.equal(wide[:, 1:], matrix), f"shift_right {rows}×{columns}"
    assert (wide[:, 0] == value).all()
    wide[:, 0] = 9
    shift_left(buffer, rows, columns)
    left = buffer[: rows * columns].view(rows, columns)
    assert torch.equal(left, matrix), f"shift_left {rows}×{columns}"


def numbered(rows: int, columns: int) -> torch.Tensor:
    return torch.arange(10, 10 + rows * columns, dtype=torch.float32).view(rows, columns)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the number of threads, which small matrices use too."""
    before = torch.get_num_threads()
    monkeypatch.setattr(realignment, "SERIAL_BYTES", 0)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_every_small_shape_in_one_group() -> None:
    for rows in range(41):
        for columns in range(41):
            check(numbered(rows, columns))


def in_any_order(function: int, record: int, threads: int) -> None:
    """Instead of threads: the groups one after another, in an order that threads could have."""
    words = np.frombuffer((ctypes.c_int64 * len(JOB)).from_address(record), np.int64)
    count = int(words[JOB.index("groups")])
    size = len(JOB) + count * len(GROUP)
    job = np.frombuffer((ctypes.c_int64 * size).from_address(record), np.int64)
    table = job[len(JOB) :].reshape(count, len(GROUP))
    before = table.copy()
    table[:] = ORDERS.permutation(before)
    run_on_threads(function, record, 1)
    assert job[JOB.index("next_group")] > count, "every group was taken"
    table[:] = before


@pytest.mark.parametrize("count", [2, 3, 40])
def test_every_small_shape_in_groups_of_any_order(
    count: int, threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 40 threads every row is a group, as in the report. Elements that a group damages and no
    copy saves would be wrong in some of these orders."""
    monkeypatch.setattr(realignment, "run_on_threads", in_any_order)
    monkeypatch.setattr(torch, "get_num_threads", lambda: count)
    for rows in range(41):
        for columns in range(0, 41, 1 if count == 40 else 3):
            check(numbered(rows, columns))


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_large_thin_and_single_shapes_on_threads(
    shape: tuple[int, int], threads: Callable[[int], None]
) -> None:
    threads(3)
    check(torch.randn(shape))


def test_bound_calls_can_be_repeated(threads: Callable[[int], None]) -> None:
    threads(2)
    rows, columns = 50, 7
    buffer = torch.zeros(rows * (columns + 1))
    right, left = (
        bind_shift_right(buffer, rows, columns, 3.0),
        bind_shift_left(buffer, rows, columns),
    )
    for _ in range(3):
        matrix = torch.randn(rows, columns)
        buffer[: rows * columns] = matrix.reshape(-1)
        right()
        assert torch.equal(buffer.view(rows, columns + 1)[:, 1:], matrix)
        assert (buffer.view(rows, columns + 1)[:, 0] == 3.0).all()
        left()
        assert torch.equal(buffer[: rows * columns].view(rows, columns), matrix)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex128])
def test_element_types(dtype: torch.dtype, threads: Callable[[int], None]) -> None:
    threads(2)
    check(torch.randn(37, 11).to(dtype), value=0.5)


def test_the_helper_has_the_reports_size() -> None:
    for rows in range(1, 30):
        single = RowGroups.even(rows, 40, rows)
        for _, counts in (single.overwritten_right(), single.overwritten_left()):
            assert counts.sum() == rows * (rows - 1) // 2
        threads = 4
        for _, counts in (RowGroups.even(rows, 40, threads).overwritten_right(),):
            assert counts.sum() <= (threads - 1) * rows


def test_errors_say_what_the_buffer_must_be() -> None:
    with pytest.raises(ShapeError, match="3×2 matrix needs a contiguous buffer of 9 elements"):
        shift_right(torch.zeros(8), 3, 2)
    with pytest.raises(ShapeError, match="contiguous"):
        shift_left(torch.zeros(18)[::2], 3, 2)
    with pytest.raises(ShapeError, match="needs a buffer"):
        mm.nn.functional.shift_right(mm.ones(3))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bias_in_the_weights(workers: int) -> None:
    """The public functions: one product with a column of ones equals product and bias."""
    rows, inputs, units = 13, 5, 4
    generator = np.random.default_rng(0)
    x, w, b = (generator.normal(size=s) for s in ((rows, inputs), (inputs, units), (units,)))
    with mm.init(workers, launcher="threads"):

        def folded(x: Any, wide: Any) -> Any:
            flat = mm.concat([mm.reshape(x, (-1,)), mm.zeros(rows, dtype=x.dtype)])
            buffer = mm.reshape(flat, (rows, inputs + 1))
            return mm.nn.functional.shift_right(buffer) @ wide

        wide = mm.concat([mm.asarray(b)[None], mm.asarray(w)])
        compiled = mm.compile(folded)
        for _ in range(3):
            y = compiled(mm.asarray(x), wide)
            np.testing.assert_allclose(np.asarray(y), x @ w + b, rtol=1e-12)
        slope = mm.grad(lambda w: mm.sum(folded(mm.asarray(x), w) ** 2))(wide)
        error = 2 * (x @ w + b)
        expected = np.concatenate([error.sum(0, keepdims=True), x.T @ error])
        np.testing.assert_allclose(np.asarray(slope), expected, rtol=1e-10)
        left = mm.nn.functional.shift_left(wide)
        flat = np.asarray(left).reshape(-1)
        expected = np.concatenate([np.concatenate([b[None], w])[:, 1:].reshape(-1), np.zeros(6)])
        np.testing.assert_array_equal(flat, expected)


INTERPRETED = """
import torch
from magmath.kernels import realignment_triton as kernels
for programs, block, shapes in [
    (512, 1024, [(1, 7), (7, 1), (5, 5), (3, 1500), (40, 9)]), (3, 16, [(8, 11), (17, 2), (2, 40)])
]:
    kernels.PROGRAMS, kernels.BLOCK = programs, block
    for rows, columns in shapes:
        matrix = torch.arange(10, 10 + rows * columns, dtype=torch.float32).view(rows, columns)
        buffer = torch.full((rows * (columns + 1),), 7.0)
        buffer[: rows * columns] = matrix.reshape(-1)
        kernels.bind_shift_right(buffer, rows, columns)()
        wide = buffer.view(rows, columns + 1)
        assert torch.equal(wide[:, 1:], matrix) and (wide[:, 0] == 1).all(), (rows, columns)
        kernels.bind_shift_left(buffer, rows, columns)()
        assert torch.equal(buffer[: rows * columns].view(rows, columns), matrix), (rows, columns)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_gpu_kernels_in_tritons_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
