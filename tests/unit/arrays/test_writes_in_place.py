"""Small writes into larger arrays, line by line: into the memory of an array that nothing else
references, into a copy where something does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import MagmathError
from magmath.runtime import Pool

ROWS, COLUMNS = 6, 12_000
"""The extents of arrays that are larger than those which each write copies."""
Pair = tuple[Any, Any]
"""An array of magmath and one of NumPy with the same values."""


def evaluated(x: mm.Array) -> mm.Array:
    mm.evaluate(x)
    return x


def row_of(data: st.DataObject) -> int:
    return data.draw(st.integers(-ROWS, ROWS - 1), label="row")


def write_number(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i = row_of(data)
    x[i] = y[i] = data.draw(st.sampled_from([0, 2, 0.5]))


def write_element(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i, j = row_of(data), data.draw(st.integers(0, COLUMNS - 1))
    x[i, j] = y[i, j] = 7.5


def write_window(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i, j = row_of(data), data.draw(st.integers(0, 50))
    x[i, j : j + 30 : 3] = y[i, j : j + 30 : 3] = 3.5


def write_columns(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    j = data.draw(st.integers(0, 50))
    x[1:, j : j + 2] = y[1:, j : j + 2] = 4.5


def write_array(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i, scale = row_of(data), data.draw(st.integers(1, 5))
    values = np.arange(COLUMNS, dtype="float32") * scale
    kinds: dict[str, Callable[[], Any]] = {
        "numpy": lambda: values,
        "float64": lambda: values.astype("float64"),
        "integers": lambda: mm.asarray(values.astype("int32")),
        "stored": lambda: mm.asarray(values),
        "pending": lambda: mm.arange(COLUMNS, dtype="float32") * scale,
        "kept": lambda: kept[0][0] * scale,
    }
    kind = data.draw(st.sampled_from([*kinds]), label="kind")
    value = kinds[kind]()
    x[i], y[i] = value, kept[0][1] * scale if kind == "kept" else values
    if data.draw(st.booleans(), label="named"):
        kept.append((value, y[i].copy()))


def move(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i, j = row_of(data), row_of(data)
    x[i], y[i] = x[j], y[j]


def update(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i = row_of(data)
    x[i] += 1
    y[i] += 1


def recur(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i, j = row_of(data), row_of(data)
    x[i], y[i] = x[j] * 0.5 + 1, y[j] * np.float32(0.5) + 1


def write_rows(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    rows = np.asarray(data.draw(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=3)))
    kind = data.draw(st.sampled_from([list, np.asarray, mm.asarray]))
    x[kind(rows.tolist())] = y[rows] = 8.5
    x[kind(rows.tolist()), 3] = y[rows, 3] = 9.5
    if len(set(rows.tolist())) == len(rows):
        x[kind(rows.tolist())], y[rows] = x[kind(rows[::-1].tolist())], y[rows[::-1]]


def write_masked_rows(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    mask = np.asarray(data.draw(st.lists(st.booleans(), min_size=ROWS, max_size=ROWS)))
    x[mm.asarray(mask)] = y[mask] = 9.5


def keep_copy(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    kept.append((x.copy(), y.copy()))


def keep_pending(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    kept.append((x * 2, y * 2))


def keep_evaluated(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    kept.append((evaluated(mm.sum(x, axis=0)), y.sum(0)))


def keep_view(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i = row_of(data)
    kept.append(data.draw(st.sampled_from([(x[i], y[i]), (x.T, y.T), (x[1:], y[1:])])))


def keep_reshaped(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    kept.append((mm.reshape(x, (-1,)), y.reshape(-1)))


def write_view(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i = row_of(data)
    row, known = x[i], y[i]
    row[3] = known[3] = 6.5
    kept.append((row, known))


def forget(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    del kept[1:]


def read(x: Any, y: Any, kept: list[Pair], data: st.DataObject) -> None:
    i = row_of(data)
    assert float(x[i, 5]) == float(y[i, 5])


STEPS = [write_number, write_element, write_window, write_columns, write_array, move, update, recur,
         write_rows, write_masked_rows, keep_copy, keep_pending, keep_evaluated, keep_view,
         keep_reshaped, write_view, forget, read]  # fmt: skip
MAKERS: list[Callable[[], Any]] = [
    lambda: mm.zeros((ROWS, COLUMNS)),
    lambda: mm.asarray(np.zeros((ROWS, COLUMNS), "float32")),
    lambda: evaluated(mm.ones((ROWS, COLUMNS)) - 1),
]


@given(st.data())
def test_writes_between_readers_views_and_copies(data: st.DataObject) -> None:
    x, y = data.draw(st.sampled_from(MAKERS))(), np.zeros((ROWS, COLUMNS), "float32")
    ones = np.ones(COLUMNS, "float32").cumsum(dtype="float32") - 1
    kept: list[Pair] = [(mm.asarray(ones), ones)]
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=4, max_size=14)):
        step(x, y, kept, data)
    for actual, known in [*kept, (x, y)]:
        np.testing.assert_array_equal(np.asarray(actual), known)


def address(x: mm.Array) -> int:
    values = x.evaluated_leaf().value.local_array()
    assert values is not None
    return values.ctypes.data  # type: ignore[no-any-return]


@pytest.mark.parametrize("extents", [(40, 100), (500, 1000)], ids=["small", "large"])
def test_a_loop_over_rows_runs_no_program_and_copies_nothing(
    extents: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    w = row = mm.arange(extents[1], dtype="float32")
    x = mm.zeros(extents)
    x[0] = row  # the first write of a kind is planned
    x[0] = 1.0
    x[0, 1] = 1.0
    before = address(x)
    monkeypatch.setattr(Pool, "run", None)
    for i in range(10):
        w = w * 0.5 + 1
        x[i] = w
        x[i + 10] = row
        x[i + 20] = 2.0
        x[i + 30, i] = 3.0
    assert address(x) == before
    np.testing.assert_array_equal(x[15].numpy(), np.arange(extents[1]))


def test_a_value_with_other_references_is_copied() -> None:
    x = mm.zeros((ROWS, COLUMNS))
    x[0] = 1.0
    reader = x + 0
    x[0] = 2.0
    np.testing.assert_array_equal(reader.numpy()[:, 0], [1, 0, 0, 0, 0, 0])
    shared = x.copy()
    x[0] = 3.0
    np.testing.assert_array_equal(shared.numpy()[:, 0], [2, 0, 0, 0, 0, 0])


class Functional:
    """PyTorch's tensors with writes into copies, so that all former values stay."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def write(self, key: Any, value: Any) -> None:
        self.tensor = self.tensor.clone()
        self.tensor[key] = value


@given(st.data())
def test_gradients_through_writes(data: st.DataObject) -> None:
    values = np.linspace(0.5, 1.5, COLUMNS, dtype="float64")
    w, tw = mm.asarray(values), torch.tensor(values, requires_grad=True)
    x, tx = (
        mm.zeros((ROWS, COLUMNS), dtype="float64"),
        Functional(torch.zeros(ROWS, COLUMNS).double()),
    )
    sums: list[tuple[mm.Array, torch.Tensor]] = []
    for step in data.draw(st.lists(st.integers(0, 6), min_size=3, max_size=10)):
        i, j = row_of(data), row_of(data)
        if step == 0:
            x[i] = w * w
            tx.write(i, tw * tw)
        elif step == 1:
            row, known = mm.exp(w), torch.exp(tw)
            x[i] = row
            tx.write(i, known)
        elif step == 2:
            x[i] = x[j] * w
            tx.write(i, tx.tensor[j] * tw)
        elif step == 3:
            x[i] = 0.5
            tx.write(i, 0.5)
        elif step == 4:
            x[i, 3:7] = w[1:5]
            tx.write((i, slice(3, 7)), tw[1:5])
        elif step == 5:
            sums.append((mm.sum(x * x), (tx.tensor * tx.tensor).sum()))
            float(sums[-1][0])
        else:
            x[i] += w
            tx.write(i, tx.tensor[i] + tw)
    sums.append((mm.sum(x * x), (tx.tensor * tx.tensor).sum()))
    for actual, known in sums:
        assert float(actual) == pytest.approx(known.item())
        if not known.requires_grad:
            continue
        # PyTorch refuses those of overwritten values, and so may magmath.
        may_refuse = nullcontext() if actual is sums[-1][0] else suppress(MagmathError)
        (expected,) = torch.autograd.grad(known, tw, retain_graph=True)
        with may_refuse:
            np.testing.assert_allclose(mm.grad(actual, w).numpy(), expected.numpy(), rtol=1e-9)


def test_a_gradient_that_needs_an_overwritten_value_is_found_again_or_refused() -> None:
    w = mm.asarray(np.linspace(1, 2, COLUMNS))
    x = mm.zeros((ROWS, COLUMNS), dtype="float64")
    x[0] = w
    y = mm.sum(x * x)
    float(y)
    x[0] = 5.0
    np.testing.assert_allclose(mm.grad(y, w).numpy(), 2 * np.linspace(1, 2, COLUMNS))


def test_writes_by_worker_processes_are_the_same(every_pool: Pool) -> None:
    x, y = mm.zeros((ROWS, COLUMNS)), np.zeros((ROWS, COLUMNS), "float32")
    row = mm.arange(COLUMNS, dtype="float32")
    for i in range(ROWS):
        x[i] = y[i] = float(i)
        x[i, 5:9] = row[:4]
        y[i, 5:9] = np.arange(4)
        x[i] *= 2
        y[i] *= 2
    np.testing.assert_array_equal(x.numpy(), y)


PROGRAMS: list[Callable[[Any, Any], Any]] = [
    lambda x, large: large @ x.T,
    lambda x, large: (large[: len(x)] * x).sum(),
    mm.compile(lambda x, large: large.sum() * x.sum()),
    lambda x, large: large + x[3],
]


@pytest.mark.parametrize("program", PROGRAMS, ids=["product", "sum", "compiled", "row"])
@pytest.mark.parametrize("extents", [(20, 50), (30, 400), (60, 400)])
@pytest.mark.parametrize("kind", [("inline", 1), ("eager", 2), ("messages", 2)])
def test_workers_read_what_was_written(
    kind: tuple[str, int], extents: tuple[int, int], program: Callable[[Any, Any], Any]
) -> None:
    """Workers receive a small array when a program reads it, and again after it was written."""
    with current(*kind):
        _compare_reads_of_workers(extents, program)


def _compare_reads_of_workers(extents: tuple[int, int], program: Callable[[Any, Any], Any]) -> None:
    y, large = np.zeros(extents), np.linspace(0, 1, 120_000).reshape(-1, extents[1])
    x, on_workers = mm.asarray(y), mm.asarray(large)
    for i in range(8):
        x[i] = y[i] = float(i)
        x[i, 5:9] += 0.5
        y[i, 5:9] += 0.5
        x[3, i] = y[3, i] = 7.5
        expected = large.sum() * y.sum() if program is PROGRAMS[2] else program(y, large)
        np.testing.assert_allclose(program(x, on_workers), expected, rtol=1e-9)


def test_an_interrupted_or_failing_write_leaves_the_array_as_it_was() -> None:
    x = mm.zeros((ROWS, COLUMNS))
    for i in range(2):
        x[i] = 1.0
        x[i, 3] = 1.0
    known = x.numpy()
    row = mm.zeros(COLUMNS + 1)
    for _ in range(2):
        with pytest.raises(MagmathError):
            x[0] = row
        with pytest.raises(IndexError):
            x[ROWS] = 2.0
        with pytest.raises(IndexError):
            x[0, COLUMNS] = 2.0
        with pytest.raises(IndexError):
            x[mm.asarray([0, ROWS])] = 2.0
    np.testing.assert_array_equal(x.numpy(), known)


def test_a_part_of_a_row_is_read_and_written_without_the_other_rows(every_pool: Pool) -> None:
    @mm.compile
    def step(x: mm.Array, i: mm.Array) -> mm.Array:
        x = x * 1.0
        x[i + 1, 1:-1] = x[i, 1:-1] * 2
        x[2, 5:-5] += x[1, 5:-5]
        return x

    values = np.arange(ROWS * COLUMNS, dtype="float32").reshape(ROWS, COLUMNS)
    known = values.copy()
    known[4, 1:-1] = known[3, 1:-1] * 2
    known[2, 5:-5] += known[1, 5:-5]
    np.testing.assert_array_equal(step(mm.asarray(values), mm.asarray(3)).numpy(), known)
    assert step.explain().temporaries < values.nbytes  # three rows or so for each write
