"""CIFAR files, image folders, transforms and the loader, on small files in the official formats."""

from __future__ import annotations

import pickle
import struct
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.data import (
    ImageFolder,
    Loader,
    image_folders,
    load,
    normalize,
    pixel_statistics,
    random_crop,
    random_flip,
    resize,
)
from magmath.data.array_unpickler import read_pickle
from magmath.data.thread_tuning import MAX_THREADS, ThreadTuning
from magmath.errors import DataError, MissingDataError, OptionError, ShapeError

Pixels = np.ndarray[Any, np.dtype[np.uint8]]


# Writers of the official formats, from their definitions


def python2_string(text: bytes) -> bytes:
    """A `str` of Python 2 in pickle's protocol 2."""
    return (
        b"U" + bytes([len(text)]) + text
        if len(text) < 256
        else b"T" + struct.pack("<i", len(text)) + text
    )


def python2_array(array: Pixels) -> bytes:
    """An array as NumPy pickled it under Python 2, in protocol 2."""
    shape = b"".join(b"M" + struct.pack("<H", n) for n in array.shape)
    dtype = b"cnumpy\ndtype\n" + python2_string(b"u1") + b"K\0K\1\x87R(K\3" + python2_string(b"|")
    return (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + python2_string(b"b")
        + b"\x87R(K\1" + b"(" + shape + b"t" + dtype + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89"
        + python2_string(array.tobytes()) + b"tb"
    )  # fmt: skip


def python2_pickle(content: dict[bytes, bytes]) -> bytes:
    """A dictionary from strings to pickled values."""
    items = b"".join(python2_string(key) + value for key, value in content.items())
    return b"\x80\2}(" + items + b"u."


def python2_list(values: list[bytes]) -> bytes:
    return b"](" + b"".join(values) + b"e"


def cifar(folder: Path, name: str, form: str, count: int = 4) -> dict[str, tuple[Pixels, Pixels]]:
    """Write CIFAR-10 or CIFAR-100 in one of its two formats; return pixels and labels by file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    classes = 10 if name == "cifar-10" else 100
    train = [f"data_batch_{i}" for i in range(1, 6)] if classes == 10 else ["train"]
    test = ["test_batch"] if classes == 10 else ["test"]
    written = {}
    for file in train + test:
        pixels = random.integers(0, 256, (count, 3, 32, 32)).astype(np.uint8)
        labels = random.integers(0, classes, count).astype(np.uint8)
        coarse = random.integers(0, 20, count).astype(np.uint8)
        written[file] = pixels, labels
        if form == "binary":
            before = [labels] if classes == 10 else [coarse, labels]
            records = np.column_stack([*before, pixels.reshape(count, -1)])
            (folder / f"{file}.bin").write_bytes(records.tobytes())
            continue
        numbers = python2_list([b"K" + bytes([n]) for n in labels])
        content = {
            b"data": python2_array(pixels.reshape(count, -1)),
            b"batch_label": python2_string(b"x"),
        }
        content[b"labels" if classes == 10 else b"fine_labels"] = numbers
        (folder / file).write_bytes(python2_pickle(content))
    names = [f"class {i}".encode() for i in range(classes)]
    if form == "binary":
        meta = "batches.meta.txt" if classes == 10 else "fine_label_names.txt"
        (folder / meta).write_bytes(b"\n".join(names) + b"\n\n")
    else:
        key = b"label_names" if classes == 10 else b"fine_label_names"
        listed = python2_list([python2_string(text) for text in names])
        meta = "batches.meta" if classes == 10 else "meta"
        (folder / meta).write_bytes(python2_pickle({key: listed}))
    return written


FOLDERS = {
    ("cifar-10", "binary"): "cifar-10-batches-bin",
    ("cifar-10", "python"): "cifar-10-batches-py",
    ("cifar-100", "binary"): "cifar-100-binary",
    ("cifar-100", "python"): "cifar-100-python",
}


@pytest.mark.parametrize(("name", "form"), FOLDERS)
def test_cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str) -> None:
    written = list(cifar(tmp_path / FOLDERS[name, form], name, form).values())
    data = load(name, tmp_path)
    pixels, labels = (np.concatenate(parts) for parts in zip(*written[:-1], strict=True))
    np.testing.assert_array_equal(data.train_images * 255, pixels)
    np.testing.assert_array_equal(data.train_labels, labels)
    np.testing.assert_array_equal(data.test_images * 255, written[-1][0])
    np.testing.assert_array_equal(data.test_labels, written[-1][1])
    assert data.train_images.dtype == np.float32
    assert data.train_labels.dtype == np.int64
    assert data.classes[3] == "class 3"
    assert len(data.classes) == (10 if name == "cifar-10" else 100)
    assert len(load(name, tmp_path / FOLDERS[name, form]).train_labels) == len(labels)
    monkeypatch.setenv("MAGMATH_DATA", str(tmp_path))
    assert len(load(name).train_labels) == len(labels)


def test_cifar_pickled_by_python_3(tmp_path: Path) -> None:
    cifar(tmp_path, "cifar-10", "python")
    for protocol in range(6):
        pixels = np.asfortranarray(np.arange(2 * 3072).reshape(2, 3072).astype(np.uint8))
        content = {b"data": pixels, b"labels": [1, 2], b"batch_label": b""}
        (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol))
        np.testing.assert_array_equal(
            load("cifar-10", tmp_path).test_images.ravel() * 255, pixels.ravel()
        )


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    """Empty and other bytes, and arrays in both orders, as views and without elements."""
    numbers = np.arange(24, dtype=np.uint8).reshape(4, 6)
    content = {
        b"empty": b"", b"text": b"a\xff\n", b"ascii": "a", b"rows": numbers, b"none": numbers[:0],
        b"columns": np.asfortranarray(numbers), b"view": numbers[::2, ::3],
    }  # fmt: skip
    file = tmp_path / "content"
    file.write_bytes(pickle.dumps(content, protocol))
    read = read_pickle(file)
    assert read.keys() == content.keys()
    for key, value in content.items():
        np.testing.assert_array_equal(read[key], value, err_msg=str(key))


def test_a_pickle_that_python_2_wrote_in_protocol_0(tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(
        b"(dp0\nS'labels'\np1\n(lp2\nI3\naI1\nasS'data'\np3\n"
        b"cnumpy.core.multiarray\n_reconstruct\np4\n(cnumpy\nndarray\np5\n(I0\ntp6\nS'b'\np7\n"
        b"tp8\nRp9\n(I1\n(I1\nI2\ntp10\ncnumpy\ndtype\np11\n(S'u1'\np12\nI0\nI1\ntp13\nRp14\n"
        b"(I3\nS'|'\np15\nNNNI-1\nI-1\nI0\ntp16\nbI00\nS'\\x00\\xff'\np17\ntp18\nbs."
    )
    read = read_pickle(file)
    assert read[b"labels"] == [3, 1]
    np.testing.assert_array_equal(read[b"data"], [[0, 255]])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("data_batch_2.bin", b"\0" * 3074, "must hold records of 3073 bytes.*it has 3074"),
        ("data_batch_2.bin", b"", "it has 0 bytes"),
        ("test_batch.bin", b"\x0a" + b"\0" * 3072, "labels 0 to 9; label 0 is 10"),
        ("batches.meta.txt", b"cat\n", "must hold 10 names of classes; it holds 1"),
    ],
)
def test_cifar_binary_that_is_wrong(
    tmp_path: Path, file: str, content: bytes, message: str
) -> None:
    cifar(tmp_path, "cifar-10", "binary")
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load("cifar-10", tmp_path)


class Hostile:
    """Calls a function when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


ROW = np.zeros((1, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps([1], 2), "must hold a dictionary; it holds list"),
        (pickle.dumps({b"labels": [1]}, 2), "array 'data'.*it holds NoneType"),
        (pickle.dumps({b"data": ROW[:, :9], b"labels": [1]}, 2), r"it holds \(1, 9\)"),
        (pickle.dumps({b"data": ROW, b"labels": [1, 2]}, 2), "labels of its 1 images; it holds 2"),
        (pickle.dumps({b"data": ROW, b"labels": [1.5]}, 2), "integers from 0 to 255"),
        (pickle.dumps({b"data": ROW, b"labels": [11]}, 2), "label 0 is 11"),
        (pickle.dumps({b"data": ROW.astype(np.int32), b"labels": [1]}, 2), "must be of type uint8"),
        (pickle.dumps({b"data": np.array([None]), b"labels": [1]}, 2), "must be of type uint8"),
        (pickle.dumps(print, 2), r"names __builtin__.print|names builtins.print"),
        (b"cos\nsystem\n(S'true'\ntR.", r"names os.system; only NumPy arrays are read"),
        (b"c__builtin__\nbytes\n(I1000000000000\ntR.", "must be stored as text or as bytes"),
        (b"c__builtin__\nbytearray\n(tR.", r"names __builtin__.bytearray"),
        (b"cnumpy.core.numeric\n_frombuffer\n(tR.", "has no content"),
        (b"\x80\2}", "is damaged"),
        (b"", "is damaged"),
        (b"\x80\2r\xff\xff\xff\xff.", "is damaged"),  # a memo entry of number 2³² - 1
        (b"\x80\4\x8e\xff\xff\xff\xff\xff\xff\xff\x0f.", "is damaged"),  # 2⁶⁰ bytes
        (python2_pickle({b"data": python2_array(ROW).split(b"(K\1")[0]}), "has no content"),
    ],
)  # fmt: skip
def test_cifar_pickle_that_is_wrong(tmp_path: Path, content: bytes, message: str) -> None:
    cifar(tmp_path, "cifar-10", "python")
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=message):
        load("cifar-10", tmp_path)


def test_pickle_executes_nothing(tmp_path: Path) -> None:
    for protocol in range(6):
        file = tmp_path / "hostile"
        file.write_bytes(pickle.dumps({b"data": Hostile(tmp_path / "made")}, protocol))
        with pytest.raises(DataError, match="names .*pathlib|names .*getattr"):
            read_pickle(file)
    assert not (tmp_path / "made").exists()


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_pickles_are_data_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = bytearray(
        python2_pickle({b"data": python2_array(ROW[:, :20]), b"labels": python2_list([b"K\1"])})
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path_factory.getbasetemp() / "damaged"
    file.write_bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        read_pickle(file)
    except DataError as error:
        assert "load: " in str(error)  # noqa: PT017  any value or a DataError, nothing else


def test_wrong_folder_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    with pytest.raises(
        MissingDataError,
        match=r"data_batch_1.bin.*which has cifar-10-python.tar.gz; get and unpack",
    ):
        load("cifar-10", tmp_path)
    with pytest.raises(MissingDataError, match="four IDX files.*it has cifar-10-python.tar.gz"):
        load("idx", tmp_path)
    with pytest.raises(MissingDataError, match="cifar-10-python.tar.gz; get the four files"):
        load("mnist", tmp_path)
    with pytest.raises(MissingDataError, match=r"\$MAGMATH_DATA|needs a folder"):
        load("cifar-100")


def test_any_idx_files(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for part, count in (("train", 7), ("test", 3)):
        images = random.integers(0, 256, (count, 6, 5)).astype(np.uint8)
        labels = (np.arange(count) % 3).astype(np.uint8)
        header = struct.pack(">BBBB3I", 0, 0, 8, 3, count, 6, 5)
        (tmp_path / f"emnist-letters-{part}-images-idx3-ubyte").write_bytes(
            header + images.tobytes()
        )
        header = struct.pack(">BBBBI", 0, 0, 8, 1, count)
        (tmp_path / f"emnist-letters-{part}-labels-idx1-ubyte").write_bytes(
            header + labels.tobytes()
        )
    data = load("idx", tmp_path)
    assert data.train_images.shape == (7, 1, 6, 5)
    assert data.classes == ("0", "1", "2")
    np.testing.assert_array_equal(data.test_images[:, 0] * 255, images)
    with pytest.raises(DataError, match="needs the folder"):
        load("idx")


# Image folders

Image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")


def image_tree(root: Path, count: int = 3, side: int = 40) -> Path:
    """Folders with JPEG and PNG files of a grey level of their own."""
    for c, name in enumerate(("ants", "bees")):
        for i in range(count):
            folder = root / name / ("more" if i == 2 else "")
            folder.mkdir(parents=True, exist_ok=True)
            level = 40 * c + 10 * i
            image = Image.new("RGB", (side + i, side + 2 * c), (level, level + 1, level + 2))
            image.save(folder / f"{i}.{'jpeg' if i else 'PNG'}", quality=95)
    return root


def read(folder: ImageFolder, *indices: int, seed: int = 0) -> Any:
    return folder.read(np.array(indices), np.random.default_rng(seed))


def test_image_folder(tmp_path: Path) -> None:
    folder = ImageFolder(image_tree(tmp_path), 8)
    assert folder.classes == ("ants", "bees")
    assert len(folder) == 6
    assert folder.labels.tolist() == [0, 0, 0, 1, 1, 1]
    images = read(folder, *range(6))
    assert images.shape == (6, 3, 8, 8)
    assert images.dtype == np.float32
    levels = [40 * c + 10 * i for c in range(2) for i in range(3)]
    np.testing.assert_allclose(images[:, 1].mean((1, 2)) * 255, np.array(levels) + 1, atol=2)
    assert read(ImageFolder(tmp_path, 5, channels=1), 4).shape == (1, 1, 5, 5)


def test_image_folder_crops(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8) * 4, (32, 64))
    Image.fromarray(ramp).save(tmp_path / "one" / "ramp.png")
    centre = read(ImageFolder(tmp_path, 28), 0)
    np.testing.assert_allclose(centre[0, 0, 0] * 255, np.arange(18, 46) * 4, atol=1)
    random = ImageFolder(tmp_path, 16, crop="random")
    parts = [read(random, 0, seed=seed) for seed in range(8)]
    np.testing.assert_array_equal(parts[3], read(random, 0, seed=3))
    assert len({part.tobytes() for part in parts}) == 8
    assert max(part.max() for part in parts) <= 1


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [("png", "I;16"), ("tif", "I;16"), ("tif", "I;16B"), ("pgm", "I"), ("tif", "I"), ("tif", "F")],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_grey_levels_of_more_than_8_bits_are_kept(
    tmp_path: Path, suffix: str, mode: str, channels: Literal[1, 3]
) -> None:
    (tmp_path / "one").mkdir()
    levels = [0, 100, 300, 20000, 60000, 65535]
    for i, level in enumerate(levels):
        value = level / 65535 if mode == "F" else level
        Image.new(mode, (8, 8), value).save(tmp_path / "one" / f"{i}.{suffix}")
    images = read(ImageFolder(tmp_path, 4, channels=channels), *range(len(levels)))
    assert images.shape == (len(levels), channels, 4, 4)
    expected = np.array(levels, np.float32)[:, None, None, None] / 65535
    np.testing.assert_allclose(images, np.broadcast_to(expected, images.shape), atol=1e-6)


@pytest.mark.parametrize(
    ("mode", "value", "largest"),
    [("F", 1.5, 1), ("F", -0.1, 1), ("F", float("nan"), 1), ("I", 65536, 65535), ("I", -1, 65535)],
)
@pytest.mark.parametrize("corrupt", ["error", "skip"])
def test_grey_levels_beyond_the_range_are_errors(
    tmp_path: Path, mode: str, value: float, largest: int, corrupt: Literal["error", "skip"]
) -> None:
    (tmp_path / "one").mkdir()
    Image.new(mode, (8, 8), 1).save(tmp_path / "one" / "0.tif")
    Image.new(mode, (8, 8), value).save(tmp_path / "one" / "1.tif")
    folder = ImageFolder(tmp_path, 4, corrupt=corrupt)
    assert read(folder, 0).max() == np.float32(1 / largest)
    with pytest.raises(DataError, match=rf"from 0 to {largest}, was given .*1.tif; scale"):
        read(folder, 1)


def test_hidden_files_and_folders_are_no_classes_and_no_images(tmp_path: Path) -> None:
    image_tree(tmp_path)
    expected = ImageFolder(tmp_path, 8)
    for hidden in (".hidden", ".ipynb_checkpoints", "ants/.ipynb_checkpoints", "bees/more/.a/b"):
        (tmp_path / hidden).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / hidden / "0.png")
    (tmp_path / "ants" / "._0.png").write_bytes(b"attributes of a file")
    folder = ImageFolder(tmp_path, 8)
    assert folder.classes == expected.classes
    assert folder.files == expected.files
    np.testing.assert_array_equal(folder.labels, expected.labels)


def test_folders_without_images_are_classes_only_if_named(tmp_path: Path) -> None:
    image_tree(tmp_path)
    (tmp_path / "bats").mkdir()
    (tmp_path / "bats" / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"sub-folders without images .*: bats; remove.*classes="):
        ImageFolder(tmp_path, 8)
    named = ImageFolder(tmp_path, 8, classes=["ants", "bats", "bees"])
    assert named.classes == ("ants", "bats", "bees")
    assert named.labels.tolist() == [0, 0, 0, 2, 2, 2]


def test_corrupt_images(tmp_path: Path) -> None:
    image_tree(tmp_path)
    cut = tmp_path / "ants" / "1.jpeg"
    cut.write_bytes(cut.read_bytes()[:250])
    text = tmp_path / "bees" / "0.PNG"
    text.write_text("not an image")
    with pytest.raises(
        DataError, match=r"1.jpeg is not a readable image.*corrupt=\"skip\" or \"warn\""
    ):
        read(ImageFolder(tmp_path, 8), 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = ImageFolder(tmp_path, 8, corrupt="skip")
        images = read(folder, *range(6))
    np.testing.assert_array_equal(images[1], images[2])
    np.testing.assert_array_equal(images[3], images[4])
    assert set(folder.corrupt_files) == {cut, text}
    folder = ImageFolder(tmp_path, 8, corrupt="warn")
    with pytest.warns(RuntimeWarning, match="1.jpeg is not a readable image and is replaced"):
        read(folder, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(folder, 1)  # each file is named once
    for file in tmp_path.rglob("*.*"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match="none of the files of the class 'ants'"):
        read(ImageFolder(tmp_path, 8, corrupt="skip"), 0)


@pytest.mark.parametrize("corrupt", [(2,), (0, 2), (3,), (4, 5), (0, 1, 5)])
def test_another_image_of_the_class_replaces_a_corrupt_one(
    tmp_path: Path, corrupt: tuple[int, ...]
) -> None:
    """A batch has the label of the file that is corrupt: also of the first and last ones."""
    image_tree(tmp_path)
    whole = ImageFolder(tmp_path, 8)
    images = read(whole, *range(6))
    for number in corrupt:
        whole.files[number].write_bytes(b"")
    result = read(ImageFolder(tmp_path, 8, corrupt="skip"), *range(6))
    for number in range(6):
        turns = [3 * (number // 3) + (number + i) % 3 for i in range(3)]
        readable = next(other for other in turns if other not in corrupt)
        np.testing.assert_array_equal(result[number], images[readable])


def test_wrong_image_folders(tmp_path: Path) -> None:
    with pytest.raises(
        MissingDataError, match="must have one sub-folder for each class.*does not exist"
    ):
        ImageFolder(tmp_path / "nowhere")
    (tmp_path / "readme.txt").write_text("")
    with pytest.raises(DataError, match="one sub-folder for each class.*it has readme.txt"):
        ImageFolder(tmp_path)
    with pytest.raises(MissingDataError, match="'train' and 'val'.*it has readme.txt"):
        image_folders(tmp_path)
    with pytest.raises(OptionError, match="corrupt must be one of"):
        ImageFolder(tmp_path, corrupt="ignore")  # type: ignore[arg-type]
    image_tree(tmp_path / "train")
    image_tree(tmp_path / "val")
    train, test = image_folders(tmp_path, 8)
    assert (train.crop, test.crop) == ("random", "center")
    (tmp_path / "val" / "wasps").mkdir()
    with pytest.raises(DataError, match="not classes of the training images: wasps"):
        image_folders(tmp_path)


# Transforms


def images_of(count: int = 5, channels: int = 3, height: int = 6, width: int = 7) -> Any:
    return np.random.default_rng(1).random((count, channels, height, width), np.float32)


def test_flip_mirrors_some_images() -> None:
    images = images_of(200)
    flipped = random_flip()(images, np.random.default_rng(0))
    same = (flipped == images).all((1, 2, 3))
    np.testing.assert_array_equal(flipped[~same], images[~same][..., ::-1])
    assert 60 < same.sum() < 140
    np.testing.assert_array_equal(random_flip(0)(images, np.random.default_rng(0)), images)
    np.testing.assert_array_equal(
        random_flip(1)(images, np.random.default_rng(0)), images[..., ::-1]
    )


@pytest.mark.parametrize("shape", [(4, 5), (2, 4, 5), (2, 3, 4, 5)])
def test_flip_takes_samples_of_any_shape(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(2).random((50, *shape), np.float32)
    loader = Loader((images, np.arange(50)), 50, transforms=[random_flip()], threads=0)
    flipped, numbers = next(iter(loader))
    assert flipped.shape == images.shape
    for result, number in zip(flipped, numbers, strict=True):
        image = images[number]
        assert (result == image).all() or (result == image[..., ::-1]).all()


def test_crop_is_a_window_of_the_padded_image() -> None:
    images = images_of(50)
    cropped = random_crop(2)(images, np.random.default_rng(0))
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (6, 7), (2, 3))
    result = set()
    for i in range(50):
        same = (windows[i] == cropped[i, :, None, None]).all((0, 3, 4))
        assert same.any()
        result.add(int(same.argmax()))
    assert len(result) > 10


def test_normalize() -> None:
    images = images_of()
    mean, std = pixel_statistics(images)
    np.testing.assert_allclose(mean, images.mean((0, 2, 3)), rtol=1e-6)
    np.testing.assert_allclose(std, images.std((0, 2, 3)), rtol=1e-5)
    result = normalize(mean, std)(images, np.random.default_rng(0))
    assert result.dtype == np.float32
    np.testing.assert_allclose(result.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(result.std((0, 2, 3)), 1, atol=1e-5)
    with pytest.raises(ShapeError, match="images of 3 channels need one number, or 3; was given 2"):
        normalize([0.1, 0.2], 1)(images, np.random.default_rng(0))


@pytest.mark.parametrize("size", [(6, 7), (12, 14), (4, 5), (13, 3), (1, 1)])
def test_resize_is_torch_interpolate(size: tuple[int, int]) -> None:
    images = images_of()
    expected = torch.nn.functional.interpolate(torch.from_numpy(images), size, mode="bilinear")
    result = resize(size)(images, np.random.default_rng(0))
    np.testing.assert_allclose(result, expected.numpy(), atol=1e-5)
    assert result.dtype == np.float32


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: random_flip(1.5), "probability"),
        (lambda: random_crop(-1), "padding"),
        (lambda: normalize(0, 0), "std must be positive"),
        (lambda: resize(0), "a size must be an integer of at least 1"),
        (lambda: resize((8, 32.5)), "a size must be an integer of at least 1"),  # type: ignore[arg-type]
        (lambda: resize(32.5), "needs one size, or"),  # type: ignore[arg-type]
        (lambda: resize((8, 8, 8)), "needs one size, or"),  # type: ignore[arg-type]
    ],
)
def test_transforms_check_their_options(make: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make()


# The loader

LABELS = np.arange(23)
IMAGES = images_of(23)
AUGMENTED = [random_crop(2), random_flip(), normalize(0.5, 0.25)]


def batches(loader: Loader, epoch: int) -> list[Any]:
    return list(loader.epoch(epoch))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_batches_do_not_depend_on_threads(threads: int) -> None:
    for epoch in range(2):
        expected = batches(
            Loader((IMAGES, LABELS), 4, transforms=AUGMENTED, seed=3, threads=0), epoch
        )
        actual = batches(
            Loader((IMAGES, LABELS), 4, transforms=AUGMENTED, seed=3, threads=threads), epoch
        )
        assert len(expected) == len(actual) == 6
        for (x, y), (u, v) in zip(expected, actual, strict=True):
            assert x.dtype == np.float32
            assert x.flags.c_contiguous
            assert y.dtype == np.int64
            np.testing.assert_array_equal(x, u)
            np.testing.assert_array_equal(y, v)


def test_epochs_have_every_sample_in_another_order() -> None:
    loader = Loader((IMAGES, LABELS), 4, seed=3, threads=2)
    orders = [np.concatenate([y for _, y in loader]) for _ in range(3)]
    assert [sorted(order) for order in orders] == [LABELS.tolist()] * 3
    assert len({tuple(order) for order in orders}) == 3
    np.testing.assert_array_equal(orders[1], np.concatenate([y for _, y in loader.epoch(1)]))
    for x, y in loader.epoch(0):
        np.testing.assert_array_equal(x, IMAGES[y])
    fixed = Loader((IMAGES, LABELS), 4, shuffle=False)
    np.testing.assert_array_equal(np.concatenate([y for _, y in fixed]), LABELS)
    assert [len(y) for _, y in Loader((IMAGES, LABELS), 4, drop_last=True)] == [4] * 5
    assert loader.sample_shape == (3, 6, 7)
    assert repr(loader) == "Loader(23 samples in 6 batches of 4, 2 threads)"


def test_transforms_have_random_numbers_of_their_own_in_each_batch() -> None:
    drawn: list[float] = []

    def record_draw(images: Any, random: np.random.Generator) -> Any:
        drawn.append(random.random())
        return images

    for seed in range(2):
        loader = Loader((IMAGES, LABELS), 4, transforms=[record_draw], seed=seed, threads=0)
        batches(loader, 0), batches(loader, 1)
    assert len(set(drawn)) == len(drawn) == 24


@pytest.mark.parametrize("epoch", [0, 1])
def test_orders_and_transforms_have_streams_of_their_own(epoch: int) -> None:
    """No batch permutes its samples as the epoch does."""
    drawn: list[list[int]] = []

    def permute(samples: Any, random: np.random.Generator) -> Any:
        drawn.append(random.permutation(8).tolist())
        return samples

    source = np.arange(8.0)[:, None], np.arange(8)
    order = next(Loader(source, 8, threads=0, seed=1).epoch(epoch))[1].tolist()
    loader = Loader(source, 2, transforms=[permute], threads=0, seed=1)
    assert loader.sample_shape == (1,)
    batches(loader, epoch)
    assert len(drawn) == 1 + 4
    assert order not in drawn


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.ones(2) * 1j, "batches are real numbers, was given complex128"),
        (np.array(["2026-01-01", "2026-01-02"], "M8[D]"), "real numbers, was given datetime64"),
        (np.array([1, 2], "m8[s]"), "real numbers, was given timedelta64"),
        (np.array(["1", "2"]), "real numbers, was given <U1"),
        (np.array([1, 2**63], np.uint64), "int64, which does not hold 9223372036854775808"),
    ],
)
def test_batches_are_real_numbers(values: Any, message: str) -> None:
    for source in ((np.stack([values] * 3, axis=1), [0, 1]), (np.ones((2, 3)), values)):
        with pytest.raises(DataError, match=message):
            next(iter(Loader(source, 2, threads=0)))
    largest = np.array([1, 2**63 - 1], np.uint64)
    _, labels = next(iter(Loader((np.ones((2, 3)), largest), 2, threads=0, shuffle=False)))
    assert labels.tolist() == [1, 2**63 - 1]


def test_resize_takes_integers_of_numpy() -> None:
    small = resize(np.int64(3))(IMAGES, np.random.default_rng(0))  # type: ignore[arg-type]
    assert small.shape[2:] == (3, 3)


def test_a_failing_transform_is_raised_and_threads_end() -> None:
    def fail(images: Any, random: np.random.Generator) -> Any:
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no"):
        batches(Loader((IMAGES, LABELS), 4, transforms=[fail], threads=2), 0)
    with pytest.raises(ShapeError, match="must return 4 samples"):
        batches(Loader((IMAGES, LABELS), 4, transforms=[lambda x, _: x[1:]], threads=0), 0)
    with pytest.raises(DataError, match="returned None; return the samples"):
        batches(Loader((IMAGES, LABELS), 4, transforms=[lambda x, _: None], threads=0), 0)
    with pytest.raises(DataError, match=r"pair of arrays .*was given TensorDataset"):
        Loader(torch.utils.data.TensorDataset(torch.zeros(3)))  # type: ignore[arg-type]
    epoch = Loader((IMAGES, LABELS), 4, threads=2).epoch(0)
    next(epoch)
    epoch.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name.startswith("magmath-loader")]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((IMAGES, LABELS[1:]), {}, "samples .N, …. and as many targets"),
        ((IMAGES, LABELS, LABELS), {}, "pair of arrays .samples, targets.*was given 3"),
        ((IMAGES, LABELS[0]), {}, "samples .N, …. and as many targets"),
        ((IMAGES[:0], LABELS[:0]), {}, "at least one sample"),
        ((IMAGES, LABELS), {"batch_size": 24, "drop_last": True}, "leaves no batch"),
    ],
)
def test_loader_checks_its_source(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Loader(arguments, **options)


def test_loader_of_an_image_folder(tmp_path: Path) -> None:
    train, _ = image_folders(_train_and_val(tmp_path), 8)
    expected = batches(Loader(train, 4, transforms=[random_flip()], threads=0), 0)
    actual = batches(Loader(train, 4, transforms=[random_flip()], threads=3), 0)
    for (x, y), (u, v) in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(x, u)
        np.testing.assert_array_equal(y, v)


def _train_and_val(root: Path) -> Path:
    image_tree(root / "train")
    image_tree(root / "val", 1)
    return root


def _found_threads(first: int, seconds: Callable[[int], float], step: float, batches: int) -> int:
    """Return the threads that are found if a batch takes `seconds(threads)` and a step `step`."""
    tuning = ThreadTuning(first)
    for _ in range(batches):
        waited = max(seconds(tuning.threads) - step, 0.0)
        tuning.record(waited, step + waited)
    return tuning.threads


def test_the_number_of_threads_is_that_which_feeds_the_loop() -> None:
    """Batches that wait need as many threads as feed the loop; those that are computed, no more
    than there are processors."""
    waits = partial(lambda each, threads: each / threads, 0.1)
    assert 10 <= _found_threads(2, waits, 0.01, 200) <= 18
    assert _found_threads(2, waits, 0.2, 200) == 2, "the loop never waits"
    assert _found_threads(2, waits, 0.0, 400) == MAX_THREADS
    computes = partial(lambda each, threads: each / min(threads, 2), 0.1)
    assert _found_threads(2, computes, 0.01, 9) == 3, "a trial"
    assert _found_threads(2, computes, 0.01, 100) == 2


def test_batches_of_a_loader_that_finds_its_threads_are_the_same() -> None:
    """Also while the number changes, and for an epoch that is left early."""
    kinds = [
        Loader((IMAGES, LABELS), 1, transforms=AUGMENTED, seed=3, threads=threads)
        for threads in (None, 0)
    ]
    tuned, plain = kinds
    assert tuned._tuning is not None
    for epoch in range(3):
        for i, (actual, wanted) in enumerate(
            zip(tuned.epoch(epoch), plain.epoch(epoch), strict=True)
        ):
            for a, b in zip(actual, wanted, strict=True):
                np.testing.assert_array_equal(a, b)
            tuned._tuning.threads = 1 + (i + epoch) % 5
    left = tuned.epoch(3)
    for i in range(9):
        next(left)
        tuned._tuning.threads = 1 + i % 3
    left.close()  # type: ignore[attr-defined]
    assert not [t for t in threading.enumerate() if t.name.startswith("magmath-loader")]


def test_first_batches_of_epochs_do_not_count() -> None:
    """The loop waits for them in any case: a loop that never waits later keeps its threads."""
    tuning = ThreadTuning(2)
    for _ in range(50):
        tuning.begin_epoch()
        for i in range(30):
            tuning.record(1.0 if i == 0 else 0.0, 1.1 if i == 0 else 0.1)
    assert tuning.threads == 2
