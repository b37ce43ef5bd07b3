"""The selection of rows by compiled code: what NumPy selects, and the same errors as before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.kernels import row_selection
from magmath.kernels.row_selection import CODE, LEAST_BYTES, index_select

POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3), ("shared", 4)]
POOL_NAMES = [f"{n}-{kind}" for kind, n in POOLS]
DTYPES = [torch.bool, torch.int16, torch.float32, torch.int64, torch.float64, torch.complex128]


@pytest.fixture(autouse=True, scope="module")
def _compiled() -> None:
    CODE.compile()
    CODE._next_look = 0.0


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("row", [(), (1,), (3,), (7, 5)], ids=str)
def test_rows_are_those_of_numpy(
    dtype: torch.dtype, row: tuple[int, ...], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_selection, "LEAST_BYTES", 1)
    monkeypatch.setattr(row_selection, "DIVIDED_BYTES", 1)
    random = np.random.default_rng(len(row))
    for rows, count in ((1, 5), (9, 1), (40, 33), (1000, 1700)):
        x = torch.from_numpy(random.integers(0, 99, (rows, *row))).to(dtype)
        index = random.integers(0, rows, count)
        out = torch.empty((count, *row), dtype=dtype)
        index_select(x, 0, torch.from_numpy(index), out)
        assert torch.equal(out, x[torch.from_numpy(index)])


def test_positions_are_checked_and_negative_ones_count_from_the_end() -> None:
    x = torch.arange(LEAST_BYTES, dtype=torch.float64)
    out = torch.empty(LEAST_BYTES, dtype=torch.float64)
    index = torch.arange(LEAST_BYTES) - LEAST_BYTES
    index_select(x, 0, index, out)
    assert torch.equal(out, x)
    for wrong in (LEAST_BYTES, -LEAST_BYTES - 1, 2**62, -(2**62)):
        index[17] = wrong
        with pytest.raises(IndexError):
            index_select(x, 0, index, out)


def test_other_memory_orders_are_left_to_torch() -> None:
    x = torch.rand(300, 200, dtype=torch.float64)
    index = torch.randint(0, 200, (400,))
    for source, axis in ((x.T, 0), (x, 1), (x[:, ::2], 0)):
        out = torch.empty(0, dtype=torch.float64)
        torch.index_select(source, axis, index, out=out)
        found = torch.empty_like(out)
        index_select(source, axis, index, found)
        assert torch.equal(found, out)


@pytest.mark.parametrize("pool", POOLS, ids=POOL_NAMES)
def test_rows_of_arrays_in_every_layout(pool: tuple[str, int]) -> None:
    random = np.random.default_rng(5)
    values = random.random((3000, 6))
    order, mask = random.permutation(3000) - 1500, random.random(3000) < 0.6
    layouts = [mm.Layout.split(0), mm.Layout.split(1), mm.Layout.cyclic(0, 7), None]
    with current(*pool):
        for layout in layouts:
            x = mm.asarray(values, layout=layout if pool[1] > 1 else None)
            for places in (order, order.astype(np.int32), np.abs(order)):
                np.testing.assert_array_equal(x[mm.asarray(places)].numpy(), values[places])
            np.testing.assert_array_equal(x[mm.asarray(mask)].numpy(), values[mask])
            np.testing.assert_array_equal(x[:, 0][mm.asarray(order)].numpy(), values[order, 0])
            with pytest.raises(IndexError, match="index 3000 is out of range for extent 3000"):
                x[mm.asarray(np.append(order, 3000))].numpy()
