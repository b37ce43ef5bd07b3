"""Files of named arrays: every name of an HDF5 file's links loads its array, and a member that
cannot be read does not prevent reading others by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import DataError, DTypeError
from magmath.files import hdf5

NAMES = ["a", "b", "c"]
GROUPS = ["/", "/a", "/b", "/a/b", "/c"]


@settings(max_examples=40)
@given(
    links=st.lists(
        st.tuples(
            st.sampled_from(GROUPS),
            st.sampled_from(["data", *NAMES]),
            st.sampled_from(["hard", "soft", "external"]),
            st.sampled_from([*GROUPS, "/data", "/a/data"]),
        ),
        max_size=5,
    ),
    chunks=st.sampled_from([None, (2,)]),
    pool=st.sampled_from([("inline", 1), ("shared", 2)]),
)
def test_every_path_through_links_loads_its_array(
    tmp_path_factory: pytest.TempPathFactory,
    links: list[tuple[str, str, str, str]],
    chunks: tuple[int] | None,
    pool: tuple[str, int],
) -> None:
    """Links may refer to data sets, groups, outer groups and the same groups in another file."""
    folder: Path = tmp_path_factory.getbasetemp()
    for path, first in ((folder / "links.h5", 0), (folder / "other.h5", 100)):
        with h5py.File(path, "w") as file:
            for i, group in enumerate(GROUPS):
                values = np.arange(3.0) + first + 10 * i
                file.require_group(group).create_dataset("data", data=values, chunks=chunks)
            for group, name, kind, target in links if path.stem == "links" else []:
                if name not in file[group] and target in file:
                    file[group][name] = {
                        "hard": lambda file=file, target=target: file[target],
                        "soft": lambda target=target: h5py.SoftLink(target),
                        "external": lambda target=target: h5py.ExternalLink("other.h5", target),
                    }[kind]()
    with h5py.File(folder / "links.h5") as file:
        expected = {path: file[path][...] for path in paths_of(file, (file["/"],))}
    with current(*pool):
        arrays = mm.load(folder / "links.h5", layout=mm.Layout.split(0))
        assert arrays.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_array_equal(arrays[name].numpy(), values, err_msg=name)
        for name in sorted(expected)[:5]:
            for path in (name, f"/{name}", f"/{name.replace('/', '//')}"):
                by_name = mm.load(folder / "links.h5", path)
                np.testing.assert_array_equal(by_name.numpy(), expected[name], err_msg=path)


def paths_of(file: Any, groups: tuple[Any, ...], prefix: str = "") -> list[str]:
    """The paths of data sets that pass no group twice."""
    paths = []
    for name, item in groups[-1].items():
        if isinstance(item, h5py.Dataset):
            paths.append(prefix + name)
        elif item not in groups:
            paths += paths_of(file, (*groups, item), f"{prefix}{name}/")
    return paths


def test_links_that_make_very_many_paths_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(path := tmp_path / "doubled.h5", "w") as file:
        group = file
        for _ in range(60):
            group["right"] = group.create_group("left")
            group = group["left"]
        group["x"] = np.arange(3)
    monkeypatch.setattr(hdf5, "MAX_PATHS", 100)
    with current("inline"):
        with pytest.raises(DataError, match="more than 100 paths to the group.*by name"):
            mm.load(path)
        assert mm.load(path, "left/right/" * 30 + "x").tolist() == [0, 1, 2]


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["x"], file["text"] = np.arange(3), "words"
        file["records"] = np.zeros(2, "i4,f4")
        file["none"] = h5py.Empty("f4")
        file["nothing"], file["loop"] = h5py.SoftLink("/missing"), h5py.SoftLink("/loop")
        file["away"] = h5py.ExternalLink("missing.h5", "/x")
        file.create_dataset("raw", (1,), "f4", external=[(str(path), 0, 4)])


def write_npz(path: Path) -> None:
    np.savez(path, x=np.arange(3), text=np.array(["words"]), objects=np.array([{}]))


def write_packed(path: Path) -> None:
    np.savez_compressed(
        path, x=np.arange(3), text=np.array(["words"]), records=np.zeros(2, "i4,f4")
    )


def write_safetensors(path: Path) -> None:
    tensors = {
        "x": {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]},
        "eight": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [24, 25]},
    }
    header = json.dumps(tensors).encode()
    data = np.arange(3).tobytes() + b"\0"
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_zarr(path: Path) -> None:
    group = zarr.open_group(path, mode="w")
    group.create_array("x", shape=3, dtype="int64")[...] = np.arange(3)
    group.create_array("dates", shape=2, dtype="M8[s]")


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(
    ("suffix", "write"),
    [(".h5", write_hdf5), (".npz", write_npz), (".npz", write_packed),
     (".safetensors", write_safetensors), (".zarr", write_zarr)],
)  # fmt: skip
def test_members_that_cannot_be_read_are_named_and_others_load_by_name(
    suffix: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    write(path := tmp_path / f"mixed{suffix}")
    with current("inline"):
        assert mm.load(path, "x").tolist() == [0, 1, 2]
        with pytest.raises(DataError, match="no array 'y'; it holds .*x") as error:
            mm.load(path, "y")
        names = str(error.value).partition("it holds ")[2].split(", ")
        for absent in ("", "x/y", "x\0y"):
            with pytest.raises(DataError, match="mixed"):
                mm.load(path, absent)
        unreadable = set(names) - {"x"}
        with pytest.raises((DataError, DTypeError), match=r"as in mm.load\(path, 'x'\)") as error:
            mm.load(path)
        assert f"{len(unreadable)} of {len(names)} members cannot be read" in str(error.value)
        assert unreadable
        for name in unreadable:
            assert name in str(error.value)
            with pytest.raises((DataError, DTypeError), match=f"mixed.*{name}"):
                mm.load(path, name)
