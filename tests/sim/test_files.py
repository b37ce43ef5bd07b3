"""Arrays in files: any layout and number of workers can read the files of any other; damaged,
hostile or missing files and full disks raise errors and leave no files."""

from __future__ import annotations

import csv as python_csv
import io
import math
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import safetensors.torch
import torch
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from layouts import box_layouts, meshes, product_layouts, shapes
from magmath.api import input_output
from magmath.core import atomic_replace as atomic_replace_module
from magmath.core.atomic_replace import atomic_replace
from magmath.core.dtypes import DTYPES
from magmath.diagnostics import progress
from magmath.engine import session
from magmath.errors import (
    DataError,
    DTypeError,
    MagmathError,
    MissingDataError,
    MissingPackageError,
    OptionError,
    ShapeError,
)
from magmath.files import csv, npy
from magmath.files.array_specs import ArraySpec, RawBytes
from magmath.layout import Layout, Rule
from magmath.runtime import array_file as worker_file

POOLS = [("inline", 1), ("shared", 2), ("messages", 3), ("shared", 4)]
NAMED = [".npz", ".safetensors", ".h5", ".zarr"]
ALL = [".npy", *NAMED]
LACKING = {
    ".safetensors": {"complex128"}, ".npy": {"bfloat16"}, ".npz": {"bfloat16"}, ".h5": {"bfloat16"},
    ".zarr": {"bfloat16"},
}  # fmt: skip

thorough = settings(max_examples=40, suppress_health_check=list(HealthCheck))


@contextmanager
def new_folder() -> Iterator[Path]:
    """A folder for one example."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    """Numbers of any type that NumPy has, all different where the type is wide enough."""
    count = np.arange(1, math.prod(shape) + 1).reshape(shape)
    return np.asarray(count * (1 - 0.5j) if dtype.startswith("complex") else count).astype(dtype)


@st.composite
def array_layouts(draw: st.DrawFn, shape: tuple[int, ...], workers: int) -> Layout:
    mesh = draw(meshes(workers))
    kind = draw(st.sampled_from(["product", "boxes", "shared"]))
    if kind == "product":
        return draw(product_layouts(shape, mesh, partial=False))
    if kind == "boxes":
        return draw(box_layouts(shape, mesh))
    shared = workers > 1 and session.pool().topology.shares_memory
    return Layout.replicated_on(shape, session.pool().mesh, shared=shared)


def saved(suffix: str, array: Any) -> Any:
    """What to save: .npy files have no names."""
    return array if suffix == ".npy" else {"x": array}


def loaded(path: Path, **options: Any) -> mm.Array:
    result = mm.load(path, **options)
    return result["x"] if isinstance(result, dict) else result


@thorough
@given(data=st.data(), suffix=st.sampled_from(ALL))
def test_what_any_layout_wrote_any_other_reads(data: st.DataObject, suffix: str) -> None:
    shape = data.draw(shapes)
    dtype = data.draw(st.sampled_from(sorted(DTYPES.keys() - LACKING[suffix])))
    truth = values(shape, "float32" if dtype == "bfloat16" else dtype)
    with new_folder() as folder:
        path = folder / f"round{suffix}"
        with current(*data.draw(st.sampled_from(POOLS))) as pool:
            layout = data.draw(array_layouts(shape, pool.workers))
            array = mm.asarray(truth, dtype=dtype).redistribute(layout)
            mm.save(path, saved(suffix, array))
        assert os.listdir(folder) == [path.name]
        with current(*data.draw(st.sampled_from(POOLS))) as pool:
            wanted = data.draw(st.none() | array_layouts(shape, pool.workers))
            back = loaded(path, layout=wanted)
            assert (back.shape, str(back.dtype)) == (shape, dtype)
            assert wanted is None or back.layout == wanted
            np.testing.assert_array_equal(np.asarray(back), array_of(truth, dtype))


@thorough
@given(data=st.data())
def test_tables_of_text_come_back(data: st.DataObject) -> None:
    shape = (data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4)))
    real = [d for d in sorted(DTYPES) if DTYPES[d].kind in ("int", "uint", "float")]
    dtype = data.draw(st.sampled_from([d for d in real if d != "bfloat16"]))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    truth = (random.normal(size=shape) * 50).astype(dtype)
    part = data.draw(st.integers(1, 200))
    with new_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(csv, "PART_BYTES", part)
        patched.setattr(csv, "_BLOCK_BYTES", data.draw(st.integers(1, 100)))
        path = folder / "a.csv"
        with current(*data.draw(st.sampled_from(POOLS))) as pool:
            layout = data.draw(array_layouts(shape, pool.workers))
            mm.save(path, mm.asarray(truth).redistribute(layout))
        assert os.listdir(folder) == [path.name]
        if data.draw(st.booleans()):  # as other programs write it
            text = path.read_text().replace("\n", "\r\n")
            path.write_text("\ufeffname\n\n" + text, newline="")
        with current(*data.draw(st.sampled_from(POOLS))) as pool:
            wanted = data.draw(st.none() | array_layouts(shape, pool.workers))
            back = mm.data.read_csv(path, dtype=dtype, layout=wanted)
            np.testing.assert_array_equal(np.asarray(back), truth)
            natural = np.asarray(mm.load(path))
            beyond = dtype == "uint64" and truth.max() > np.iinfo("int64").max
            integral = "uint64" if beyond else "int64"
            assert natural.dtype == ("float64" if DTYPES[dtype].is_floating else integral)
            np.testing.assert_array_equal(natural.astype(dtype), truth)


def test_every_fault_of_a_table_names_its_line_on_every_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "PART_BYTES", 40)
    lines = [f"{i},{i + 1}" for i in range(100)]
    lines[70] = "70,seven"
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(lines))
    with current("messages", 3) as pool:
        with pytest.raises(DataError, match="a.csv, line 72, column 2: 'seven' is not a number"):
            mm.load(tmp_path / "a.csv")
        assert not pool.closed
    (tmp_path / "b.csv").write_text('"1","2"\n"3","4"\n')  # quotes: not divided, but read
    with current("shared", 2):
        assert mm.load(tmp_path / "b.csv", layout=mm.Layout.split(0)).tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool"])
@pytest.mark.parametrize("count", [1, 5, 1000])
def test_vectors_in_text_files_are_columns(tmp_path: Path, count: int, dtype: str) -> None:
    """As those of NumPy's `savetxt`."""
    values = (np.random.default_rng(0).normal(size=count) * 5).astype(dtype)
    with current("shared", 2):
        for i, layout in enumerate((None, mm.Layout.split(0), mm.Layout.cyclic(0))):
            mm.save(path := tmp_path / f"{i}.csv", mm.asarray(values, layout=layout))
            np.testing.assert_array_equal(np.loadtxt(path, ndmin=1), values)
            result = mm.load(path)
            assert result.shape == (count, 1)
            np.testing.assert_array_equal(result.numpy()[:, 0], values)
        mm.savetxt(tmp_path / "a.txt", mm.asarray(values))
        np.testing.assert_array_equal(np.loadtxt(tmp_path / "a.txt", ndmin=1), values)


def test_a_bar_shows_long_transfers_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG_BYTES", 10)
    with progress.transfer_progress("load a.npy", 5) as told:
        assert told is None, "it is short"
    with progress.transfer_progress("load a.npy", 50) as told:
        assert told is None, "there is no terminal"
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress.transfer_progress("load a.npy", 50) as told:
        assert told is not None
        told(20, [])
        told(30, [])
    assert "load a.npy" in stream.getvalue()
    assert "50/50 bytes" in stream.getvalue()


def array_of(truth: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """The values as their type keeps them."""
    kept = torch.from_numpy(np.asarray(truth)).to(getattr(torch, dtype))
    return (kept.float() if dtype == "bfloat16" else kept).numpy()


# With the others' own libraries ------------------------------------------------------------------


def test_others_read_what_was_written(tmp_path: Path) -> None:
    truth = values((7, 5), "float64")
    with current("shared", 3):
        array = mm.asarray(truth, layout=mm.Layout.cyclic(0))
        for suffix in ALL:
            mm.save(tmp_path / f"a{suffix}", saved(suffix, array))
        mm.savez(tmp_path / "b", array, name=array)
    result = {
        ".npy": np.load(tmp_path / "a.npy"),
        ".npz": np.load(tmp_path / "a.npz")["x"],
        ".safetensors": safetensors.torch.load_file(tmp_path / "a.safetensors")["x"].numpy(),
        ".zarr": zarr.open(tmp_path / "a.zarr", mode="r")["x"][...],
    }
    with h5py.File(tmp_path / "a.h5") as file:
        result[".h5"] = file["x"][...]
    with np.load(tmp_path / "b.npz") as both:
        result["arr_0"], result["name"] = both["arr_0"], both["name"]
    with zipfile.ZipFile(tmp_path / "b.npz") as archive:
        assert archive.testzip() is None
    for name, value in result.items():
        np.testing.assert_array_equal(value, truth, err_msg=name)


def test_the_controller_writes_all_types_and_texts(tmp_path: Path) -> None:
    with current("shared", 2):
        names = [name for name in DTYPES if name != "complex128"]
        arrays = {name: mm.asarray(np.arange(6).reshape(2, 3), dtype=name) for name in names}
        arrays |= {"scalar": mm.asarray(2.5), "empty": mm.zeros((0, 3))}
        path = tmp_path / "state.weights"
        input_output.save_on_controller(path, arrays, {"text": "ü"})
        result = safetensors.torch.load_file(path)
        for name, array in arrays.items():
            assert torch.equal(result[name], array.fetch()), name
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"text": "ü"}


@pytest.mark.parametrize("kind", [("inline", 1), ("messages", 3)])
def test_what_others_wrote_is_read(kind: tuple[str, int], tmp_path: Path) -> None:
    truth = values((6, 5, 4), "float32")
    np.save(tmp_path / "fortran.npy", np.asfortranarray(truth))
    np.save(tmp_path / "swapped.npy", truth.astype(">f4"))
    np.savez_compressed(
        tmp_path / "packed.npz", c=truth, f=np.asfortranarray(truth), n=values((), "int8")
    )
    safetensors.torch.save_file({"x": torch.from_numpy(truth)}, tmp_path / "a.safetensors")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("deep/chunked", data=truth, chunks=(2, 5, 2), compression="gzip")
        file.create_dataset("swapped", data=truth.astype(">f4"))
        file.create_dataset("truth", data=truth > 60)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("x", shape=truth.shape, dtype="float32", chunks=(4, 2, 4))[...] = truth
    old = zarr.create_array(tmp_path / "old.zarr", shape=truth.shape, dtype=">f4", zarr_format=2)
    old[...] = truth
    with current(*kind):
        rule = mm.Layout.cyclic(1)
        for name, array in {
            "fortran": mm.load(tmp_path / "fortran.npy", layout=rule),
            "swapped": mm.load(tmp_path / "swapped.npy"),
            **{k: a for k, a in mm.load(tmp_path / "packed.npz").items() if k != "n"},
            **mm.load(tmp_path / "a.safetensors", layout=rule),
            "chunked": mm.load(tmp_path / "a.h5", "deep/chunked", layout=rule),
            "h5 swapped": mm.load(tmp_path / "a.h5", "swapped"),
            "zarr": mm.load(tmp_path / "a.zarr", "x", layout=rule),
            "zarr 2": mm.load(tmp_path / "old.zarr"),
        }.items():
            np.testing.assert_array_equal(np.asarray(array), truth, err_msg=name)
        assert mm.load(tmp_path / "packed.npz", "n").tolist() == 1
        np.testing.assert_array_equal(mm.load(tmp_path / "a.h5", "truth").numpy(), truth > 60)


@pytest.mark.parametrize("suffix", [".npy", ".npz", " packed.npz", ".safetensors"])
def test_bytes_other_than_0_and_1_are_true(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"b{suffix}"
    truth = np.array([0, 1, 2, 255], np.uint8).view(bool)
    if suffix == ".npy":
        np.save(path, truth)
    elif suffix == ".safetensors":
        header = b'{"x":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}}'
        path.write_bytes(len(header).to_bytes(8, "little") + header + truth.tobytes())
    else:
        (np.savez_compressed if "packed" in suffix else np.savez)(path, x=truth)
    with current("inline"):
        array = loaded(path)
        assert (array & mm.asarray([True, True, True, True])).tolist() == [False, True, True, True]
        assert array.numpy().view(np.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("suffix", [".csv", *ALL])
def test_files_may_have_any_name(suffix: str, tmp_path: Path) -> None:
    truth = values((6, 2), "float64")
    for name in ("a[1]", "a*", "?", "a b", "-", "%s", "{}", "ü", "a\n", "a.csv"):
        with current("shared", 2):
            array = mm.asarray(truth, layout=mm.Layout.split(0))
            table = array if suffix == ".csv" else saved(suffix, array)
            mm.save(tmp_path / f"{name}{suffix}", table)
            result = loaded(tmp_path / f"{name}{suffix}")
            np.testing.assert_array_equal(np.asarray(result), truth, err_msg=name)


SEPARATORS = ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n", "\r", "\r\n"]


@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_rows_end_where_the_csv_reader_ends_them(separator: str, tmp_path: Path) -> None:
    """Other characters that Unicode calls the ends of lines belong to fields, and so do line ends
    in quotes."""
    path = tmp_path / "a.csv"
    rows = [[f"first{separator}line", "1.5"], ["second", "2.5"], [f"{separator}x", "3.5"]]
    with open(path, "w", newline="") as file:
        python_csv.writer(file).writerows([["label", "number"], *rows])
    with current("shared", 2):
        numbers = mm.data.read_csv(path, usecols="number", layout=mm.Layout.split(0))
        assert numbers.tolist() == [[1.5], [2.5], [3.5]]
    if separator in "\r\n":
        path.write_text(f'1,2\n"3{separator}4",5\n', newline="")
        with current("inline"), pytest.raises(DataError, match="is not an integer"):
            mm.load(path)


HDF5_TYPES = {
    "floats of 2 bytes, 8 of them in the exponent": ("<f2", (15, 7, 8, 0, 7), 127),
    "floats of 4 bytes, 11 of them in the exponent": ("<f4", (31, 20, 11, 0, 20), 1023),
    "integers of 12 bits": ("<i2", 12, 0),
    "integers of 12 bits from the fourth on": ("<i2", 12, 4),
    "integers of 20 bits": ("<u4", 20, 3),
}


@pytest.mark.parametrize("name", HDF5_TYPES)
def test_types_of_hdf5_that_numpy_lacks_are_converted(name: str, tmp_path: Path) -> None:
    like, form, place = HDF5_TYPES[name]
    kind = h5py.h5t.py_create(np.dtype(like)).copy()
    if isinstance(form, tuple):
        kind.set_fields(*form)
        kind.set_ebias(place)
    else:
        kind.set_precision(form)
        kind.set_offset(place)
    truth = np.arange(-6, 6).reshape(3, 4) if "u" not in like else np.arange(12).reshape(3, 4)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        space = h5py.h5s.create_simple(truth.shape)
        dataset = h5py.h5d.create(file.id, b"x", kind, space)
        dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, truth.astype(np.float64))
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["x"][...], truth)
    with current("shared", 2):
        result = mm.load(tmp_path / "a.h5", "x", layout=mm.Layout.split(0))
        np.testing.assert_array_equal(np.asarray(result), truth)


@pytest.mark.parametrize("suffix", NAMED)
def test_names_come_back_or_are_refused(suffix: str, tmp_path: Path) -> None:
    refused, path = {}, tmp_path / f"a{suffix}"
    for name in (
        "a/b", "a b", "ü", "a.npy", ".", "..", "/", "a/", "/a", "a//b", "./a", "../a", "a\\b", "a\0b",
        "a\nb", "zarr.json", "__metadata__",
    ):  # fmt: skip
        with current("inline"):
            try:
                mm.save(path, {name: mm.arange(3), "c": mm.arange(2)})
            except DataError as error:
                refused[name] = str(error)
            else:
                assert mm.load(path).keys() == {name, "c"}
    assert not refused.keys() & {"a/b", "a b", "ü", "a.npy", "a\nb"}
    assert all(f"named {name!r}" in message for name, message in refused.items())
    assert os.listdir(tmp_path) == [path.name]


# Moved data --------------------------------------------------------------------------------------


def test_the_controller_moves_no_data(tmp_path: Path) -> None:
    path = tmp_path / "large.npy"
    np.save(path, values((1 << 16, 4), "float32"))
    with current("messages", 3) as pool:
        before = pool.traffic.bytes
        array = mm.load(path, layout=mm.Layout.split(0))
        mm.save(tmp_path / "again.npy", array)
        assert pool.traffic.bytes - before < 4000
    assert (tmp_path / "again.npy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("rule", [Layout.split(0), Layout.cyclic(0, 3), Layout.split(1)], ids=str)
def test_files_are_read_in_small_pieces_that_are_reported(
    rule: Rule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_file, "PIECE_BYTES", 1000)
    truth = values((100, 3, 7), "float64")
    np.save(tmp_path / "a.npy", truth)
    told: list[int] = []
    with current("shared", 2) as pool:
        spec, place = header(tmp_path / "a.npy")
        layout = rule.bind(truth.shape, pool.mesh)
        path = str(tmp_path / "a.npy")
        array = pool.read(path, place, layout, spec.dtype, lambda n, _: told.append(n))
        np.testing.assert_array_equal(pool.get(array).numpy(), truth)
        pool.release(array)
    assert sum(told) == truth.nbytes
    assert max(told) <= 1000


def header(path: Path) -> Any:
    """The spec and the location of a .npy file's array."""
    return npy.entries(str(path))[""]


@given(data=st.data())
def test_boxes_are_written_where_they_belong(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), max_size=4).map(tuple))
    box = tuple(slice(*sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    file = np.zeros(shape, "int16")
    file[box] = values(file[box].shape, "int16")
    with tempfile.NamedTemporaryFile() as opened:
        opened.truncate(10 + file.nbytes)
        spec = ArraySpec(shape, DTYPES["int16"])
        with RawBytes(10).open(opened.name, spec, True) as elements:
            elements[(*box, ...)] = file[box]
        assert Path(opened.name).read_bytes() == bytes(10) + file.tobytes()


def test_large_replicated_arrays_are_written_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_output, "ONE_WRITER", 10)
    truth = values((7, 5), "float32")
    with current("shared", 3) as pool:
        for shared in (False, True):
            whole = Layout.replicated_on(truth.shape, pool.mesh, shared=shared)
            mm.save(tmp_path / "a.npy", mm.asarray(truth).redistribute(whole))
            np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), truth)


def test_an_interrupt_stops_a_transfer_and_the_pool_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_file, "PIECE_BYTES", 64)
    truth = values((5000, 2), "float64")
    np.save(tmp_path / "a.npy", truth)

    def interrupted(done: int, _: list[float]) -> None:
        raise KeyboardInterrupt

    with current("shared", 2) as pool:
        spec, place = header(tmp_path / "a.npy")
        layout = Layout.split(0).bind(truth.shape, pool.mesh)
        with pytest.raises(KeyboardInterrupt):
            pool.read(str(tmp_path / "a.npy"), place, layout, spec.dtype, interrupted)
        assert not pool.closed
        assert mm.sum(mm.asarray([1.0, 2.0])).item() == 3


# What goes wrong ----------------------------------------------------------------------------------


@thorough
@given(data=st.data(), suffix=st.sampled_from(ALL))
def test_damaged_files_are_errors_or_other_numbers(data: st.DataObject, suffix: str) -> None:
    with new_folder() as folder:
        path = folder / f"hostile{suffix}"
        with current("inline"):
            mm.save(path, saved(suffix, mm.asarray(values((4, 3), "float32"))))
        input_output = (
            [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        )
        damage(data.draw(st.sampled_from(input_output)), data)
        message = "hostile"
        with current(*data.draw(st.sampled_from(POOLS[:3]))):
            try:
                result = mm.load(path)
                for array in result.values() if isinstance(result, dict) else [result]:
                    np.asarray(array)
            except MagmathError as error:
                message = str(error)
        assert "hostile" in message


def damage(victim: Path, data: st.DataObject) -> None:
    """Cut a file off, or change some of its bytes."""
    content = bytearray(victim.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    victim.write_bytes(content)


HEADER = "{'descr': %s, 'fortran_order': False, 'shape': %s}"


@pytest.mark.parametrize(
    ("descr", "shape", "kind", "message"),
    [
        ("'<f4'", "(4, -2)", DataError, r"shape \(4, -2\), which no array has"),
        ("'<f4'", "(True,)", DataError, "which no array has"),
        ("'<f4'", "(1000000000000, 1000000000000)", DataError, "which no array has"),
        ("'<f4'", "(0, 10000000000000000000)", DataError, "which no array has"),
        ("'<f4'", "(0, 1000000000000, 1000000000000)", DataError, "which no array has"),
        ("'<f4'", "(100000000000, 1000000)", DataError, "truncated"),
        ("'<f4'", "(99,)", DataError, r"truncated: shape \(99,\) of float32 needs"),
        ("'|O'", "(1,)", DTypeError, "Python objects"),
        ("[('a', '<f4')]", "(1,)", DTypeError, "no counterpart"),
        ("'<U3'", "(1,)", DTypeError, "no counterpart"),
        ("'<M8[s]'", "(1,)", DTypeError, "no counterpart"),
        ("'<f16'", "(1,)", DTypeError, "no counterpart"),
        ("__import__('os').abort()", "(1,)", DataError, "not a .npy file, or is damaged"),
        ("'<f4'", "(" * 4000, DataError, "not a .npy file, or is damaged"),
    ],
)
def test_hostile_headers(
    descr: str, shape: str, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    text = (HEADER % (descr, shape)).encode() + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(16))
    with current("inline"), pytest.raises(kind, match=message):
        mm.load(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}}', "bytes 0 to 9"),
        (b'{"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,-8]}}', "which no array has"),
        (
            b'{"x":{"dtype":"F32","shape":[0,10000000000000000000],"data_offsets":[0,0]}}',
            "which no array has",
        ),
        (b'{"x":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}', "truncated"),
        (b'{"x":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}', "no counterpart"),
        (b'{"x":{"dtype":"F32","shape":[2]}}', "damaged header"),
        (b"[" * 5000, "damaged header"),
    ],
)
def test_hostile_safetensors(header: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with current("inline"), pytest.raises((DataError, DTypeError), match=message):
        mm.load(path)


@pytest.mark.parametrize("suffix", ALL)
def test_a_failure_leaves_the_former_file_and_nothing_else(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a{suffix}"
    truth = values((8, 3), "float32")

    def fails(*arguments: Any, **options: Any) -> None:
        raise OSError(28, "No space left on device")

    with current("shared", 2):
        array = mm.asarray(truth, layout=mm.Layout.split(0))
        mm.save(path, saved(suffix, array))
        with monkeypatch.context() as patched:
            patched.setattr(worker_file, "_pieces", fails)
            with pytest.raises(OSError, match="No space left"):
                mm.save(path, saved(suffix, array + 1))
        assert os.listdir(tmp_path) == [path.name]
        np.testing.assert_array_equal(np.asarray(loaded(path)), truth)
        mm.save(path, saved(suffix, array + 1))  # the pool continues
        np.testing.assert_array_equal(np.asarray(loaded(path)), truth + 1)


def test_what_a_killed_process_left_is_removed_and_a_living_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a[1].npy"
    killed = f"""
import os, signal
from magmath.core.atomic_replace import atomic_replace
with atomic_replace({str(path)!r}) as aside:
    open(aside, "w").write("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", killed], check=False)
    assert [name.startswith(".a[1].npy.saving-") for name in os.listdir(tmp_path)] == [True]
    with (
        current("inline"),
        atomic_replace(str(path)) as other,
    ):  # another process may be writing it too
        Path(other).write_text("other")
        mm.save(path, mm.ones(3))
        assert len(os.listdir(tmp_path)) == 2
        assert Path(other).exists()
    assert os.listdir(tmp_path) == [path.name]


def test_a_worker_that_does_not_see_the_file_says_so_and_the_pool_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npy"
    np.save(path, values((9,), "int64"))
    seen = os.path.exists

    def hidden(name: Any) -> bool:
        return seen(name) and threading.current_thread().name != "magmath-worker-1"

    with current("messages", 3):
        with monkeypatch.context() as patched:
            patched.setattr(worker_file.os.path, "exists", hidden)
            with pytest.raises(
                MissingDataError, match=r"worker 1 on .* does not see .*all hosts of the pool share"
            ):
                mm.load(path, layout=mm.Layout.split(0))
        assert mm.sum(mm.load(path, layout=mm.Layout.split(0))).item() == 45


def test_a_folder_of_other_things_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mine.zarr"
    path.mkdir()
    (path / "diary.txt").write_text("dear diary")
    with current("inline"), pytest.raises(DataError, match="folder with other content"):
        mm.save(path, mm.asarray([1.0]))
    assert (path / "diary.txt").read_text() == "dear diary"


def test_moving_into_place_can_fail_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "a.zarr"
    store.mkdir()
    (store / "zarr.json").write_text("former")
    rename = Path.rename

    def fails(self: Path, target: Any) -> Any:
        if Path(target) == store and self.name == "a.zarr":
            raise OSError("the disk is gone")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fails)
    monkeypatch.setattr(atomic_replace_module, "_exchange", lambda first, second: False)
    with pytest.raises(OSError, match="disk is gone"), atomic_replace(str(store)) as aside:
        Path(aside).mkdir()
    assert (store / "zarr.json").read_text() == "former"
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_a_process_killed_while_it_replaces_a_folder_loses_nothing(tmp_path: Path) -> None:
    """The old or the new folder is there after each system call that renames."""
    store = tmp_path / "a.zarr"
    store.mkdir()
    (store / "zarr.json").write_text("former")
    killed = f"""
import os, signal
from pathlib import Path
from magmath.core.atomic_replace import atomic_replace
rename = Path.rename
def rename_and_end(self, target):
    rename(self, target)
    os.kill(os.getpid(), signal.SIGKILL)
Path.rename = rename_and_end
with atomic_replace({str(store)!r}) as aside:
    Path(aside).mkdir()
    Path(aside, "zarr.json").write_text("new")
"""
    subprocess.run([sys.executable, "-c", killed], check=False)
    with atomic_replace(str(store)) as aside:  # removes what the process left
        assert (store / "zarr.json").read_text() in ("former", "new")
        Path(aside).mkdir()
        Path(aside, "zarr.json").write_text("newer")
    assert (store / "zarr.json").read_text() == "newer"
    assert os.listdir(tmp_path) == ["a.zarr"]


def test_file_objects_hold_arrays_in_the_formats_of_numpy() -> None:
    x = mm.reshape(mm.arange(6.0), (2, 3))
    file = io.BytesIO()
    mm.save(file, x)
    assert np.load(io.BytesIO(file.getvalue())).tolist() == x.tolist()
    back = mm.load(io.BytesIO(file.getvalue()), dtype=mm.float32, layout=mm.Layout.split(0))
    assert back.dtype is mm.float32
    assert back.tolist() == x.tolist()
    several = io.BytesIO()
    mm.savez(several, x, total=7)
    result = mm.load(io.BytesIO(several.getvalue()), allow_pickle=True)
    assert {name: array.tolist() for name, array in result.items()} == {
        "arr_0": x.tolist(),
        "total": 7,
    }
    assert mm.load(io.BytesIO(several.getvalue()), "total").item() == 7
    for save in (mm.savez, mm.savez_compressed):
        save(any_names := io.BytesIO(), **{"file": x, "a/b": 1, "": 2})
        with np.load(io.BytesIO(any_names.getvalue())) as read:
            assert read.files == ["file", "a/b", ""]
            np.testing.assert_array_equal(read["file"], np.asarray(x))
        with pytest.raises(DataError, match="name"):
            save(io.BytesIO(), **{"a\0b": x})
    with pytest.raises(DataError, match="has no array 'weights'"):
        mm.load(io.BytesIO(several.getvalue()), "weights")
    objects = io.BytesIO()
    np.save(objects, np.array([object()]))
    packed = io.BytesIO()
    mm.savez_compressed(packed, mm.arange(1000))
    damaged = bytearray(packed.getvalue())
    damaged[100:110] = b"\xff" * 10
    open_bracket = file.getvalue().replace(b")", b"[")
    for content in (
        b"", b"no array", objects.getvalue(), several.getvalue()[:40], bytes(damaged), open_bracket
    ):  # fmt: skip
        with pytest.raises(DataError, match="has no array of numbers"):
            mm.load(io.BytesIO(content), allow_pickle=True)
    with pytest.raises(DTypeError, match="bfloat16"):
        mm.save(io.BytesIO(), mm.ones(2, dtype=mm.bfloat16))


def test_a_path_without_a_suffix_is_of_an_npy_file(tmp_path: Path) -> None:
    x = mm.arange(3)
    mm.save(tmp_path / "numbers", x)
    assert np.load(tmp_path / "numbers.npy").tolist() == [0, 1, 2]
    assert mm.load(tmp_path / "numbers.npy", mmap_mode="r").tolist() == [0, 1, 2]
    with pytest.raises(OptionError, match="not written back"):
        mm.load(tmp_path / "numbers.npy", mmap_mode="r+")


def test_a_link_and_the_permissions_of_a_file_stay(tmp_path: Path) -> None:
    """As when a file is written, and not replaced."""
    disk, here = tmp_path / "disk", tmp_path / "here"
    disk.mkdir()
    here.mkdir()
    (disk / "first.data").write_text("former")
    (disk / "first.data").chmod(0o600)
    (here / "a.npy").symlink_to("../disk/first.data")
    (here / "b.npy").symlink_to("../disk/second.data")  # refers to nothing yet
    (here / "c.zarr").symlink_to("../disk/third")
    with current("inline"):
        for name in ("a.npy", "b.npy", "c.zarr", "c.zarr"):
            mm.save(here / name, mm.arange(3))
            assert mm.load(here / name).tolist() == [0, 1, 2]
            assert (here / name).is_symlink()
    assert (disk / "first.data").stat().st_mode & 0o777 == 0o600
    assert sorted(os.listdir(disk)) == ["first.data", "second.data", "third"]
    assert sorted(os.listdir(here)) == ["a.npy", "b.npy", "c.zarr"]


def test_a_file_never_replaces_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(IsADirectoryError, match="results"), atomic_replace(folder) as aside:
        Path(aside).write_text("new")
    assert (folder / "inside").is_dir()
    assert os.listdir(tmp_path) == ["results"]


def test_mistakes_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with current("inline"):
        x, half = mm.asarray([1.0]), mm.asarray([1.0], dtype=mm.bfloat16)
        folders = [tmp_path / f"folder{suffix}" for suffix in (".csv", ".npy", *NAMED[:-1])]
        for folder in folders:
            folder.mkdir()
        for action, kind, message in [
            (lambda: mm.load(tmp_path / "no.npy"), MissingDataError, "there is no file"),
            *[
                (lambda folder=folder: mm.load(folder), DataError, "is a folder; give the path")
                for folder in folders
            ],
            (lambda: mm.save(tmp_path / "a.txt", x), DataError, r"suffix.*\.npy, \.npz"),
            (lambda: mm.save(tmp_path / "a.npz", x), DataError, "with names; give it one"),
            (lambda: mm.save(tmp_path / "a.npy", {"x": x}), DataError, "without a name"),
            (lambda: mm.save(tmp_path / "a.npz", {"": x}), DataError, "names are strings"),
            (
                lambda: mm.save(tmp_path / "no" / "a.npy", x),
                MissingDataError,
                "does not exist; create it",
            ),
            (
                lambda: mm.save(tmp_path / "a.npy", half),
                DTypeError,
                r"no bfloat16; save as \.safetensors",
            ),
            (lambda: mm.save(tmp_path / "a.npy", {1, 2}), TypeError, "mm.asarray"),
            (lambda: mm.save(tmp_path / "a.csv", x[None, None]), ShapeError, "a table"),
            (lambda: mm.save(tmp_path / "a.csv", x[:0]), ShapeError, "a table"),
            (lambda: mm.savetxt(tmp_path / "a.txt", x[None, None]), ShapeError, "or a matrix"),
            (lambda: mm.save(tmp_path / "a.csv", x + 1j), DTypeError, "no complex64"),
            (lambda: mm.savez(tmp_path / "a", x, arr_0=x), DataError, "twice"),
        ]:
            with pytest.raises(kind, match=message):
                action()
        assert sorted(os.listdir(tmp_path)) == sorted(folder.name for folder in folders)
        mm.savez(tmp_path / "a", x)
        with pytest.raises(DataError, match="no array 'y'; it holds arr_0"):
            mm.load(tmp_path / "a.npz", "y")
        with h5py.File(tmp_path / "text.h5", "w") as file:
            file["words"] = "abc"
        with pytest.raises(DTypeError, match="words.*no counterpart"):
            mm.load(tmp_path / "text.h5")
        (tmp_path / "secret").write_bytes(bytes(8))
        with h5py.File(tmp_path / "hostile.h5", "w") as file:
            file.create_dataset("x", (2,), "f4", external=[(str(tmp_path / "secret"), 0, 8)])
        with pytest.raises(DataError, match="is stored in other files"):
            mm.load(tmp_path / "hostile.h5")
        monkeypatch.setitem(sys.modules, "zarr", None)
        with pytest.raises(MissingPackageError, match=r"pip install 'magmath\[zarr\]'"):
            mm.save(tmp_path / "a.zarr", x)
