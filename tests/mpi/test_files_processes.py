"""Files written and read by worker processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.errors import DataError


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".h5", ".zarr"])
def test_three_processes_write_what_two_read(suffix: str, tmp_path: Path) -> None:
    truth = np.random.default_rng(0).normal(size=(41, 30)).astype("float32")
    path = tmp_path / f"a{suffix}"
    with current("processes", 3):
        array = mm.asarray(truth, layout=mm.Layout.cyclic(1, 4))
        mm.save(path, array if suffix == ".npy" else {"x": array})
    with current("processes", 2):
        result = mm.load(path, layout=mm.Layout.split(0))
        back = result if suffix == ".npy" else result["x"]
        np.testing.assert_array_equal(np.asarray(back), truth)
        assert float(mm.sum(back)) == pytest.approx(truth.sum(), rel=1e-3)


def test_processes_go_on_after_a_damaged_file(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(100000.0))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[len(content) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(content)
    with current("processes", 2):
        with pytest.raises(DataError, match=r"a\.npz.* is damaged.*worker \d on"):
            np.asarray(mm.load(tmp_path / "a.npz", "x"))
        assert float(mm.sum(mm.asarray([1.0, 2.0]))) == 3
