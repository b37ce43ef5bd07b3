"""The namespace of the array API standard: types, devices, creation and exchange."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.core.dtypes import DTYPES
from magmath.errors import DeviceError, DTypeError, ShapeError

KINDS = [("inline", 1), ("shared", 2), ("messages", 3)]
STANDARD = [name for name in DTYPES if name not in ("float16", "bfloat16")]


@pytest.fixture(autouse=True)
def pool() -> Iterator[Any]:
    with current("inline") as pool:
        yield pool


# types -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "complex64", "complex128"])
def test_limits_of_floating_point_types(name: str) -> None:
    theirs = np.finfo(name)
    for subject in (getattr(mm, name), name, mm.zeros(1, dtype=name)):
        ours = mm.finfo(subject)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, field) == getattr(theirs, field)
            assert type(getattr(ours, field)) in (int, float)
        assert ours.dtype.name == theirs.dtype.name
    with pytest.raises(DTypeError, match="iinfo: takes integer types"):
        mm.iinfo(name)


@pytest.mark.parametrize("name", [name for name in STANDARD if "int" in name])
def test_limits_of_integer_types(name: str) -> None:
    theirs = np.iinfo(name)
    for subject in (getattr(mm, name), mm.zeros(1, dtype=name)):
        ours = mm.iinfo(subject)
        assert (ours.bits, ours.min, ours.max) == (theirs.bits, theirs.min, theirs.max)
    with pytest.raises(DTypeError, match="finfo: takes floating point types"):
        mm.finfo(name)


@pytest.mark.parametrize("name", STANDARD)
def test_kinds_of_types_are_numpys(name: str) -> None:
    kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
             "complex floating", "numeric"]  # fmt: skip
    dtype, info = getattr(mm, name), mm.__array_namespace_info__()
    for kind in kinds:
        belongs = np.isdtype(np.dtype(name), kind)
        assert mm.isdtype(dtype, kind) is belongs
        assert (name in info.dtypes(kind=kind)) is belongs
        assert mm.isdtype(dtype, (kind, mm.bool)) is (belongs or name == "bool")
    assert mm.isdtype(dtype, dtype)
    assert info.dtypes()[name] is info.dtypes(kind=("bool", "numeric"))[name] is dtype
    assert len(info.dtypes()) == len(STANDARD)
    with pytest.raises(DTypeError, match="'floats' is not known"):
        mm.isdtype(dtype, "floats")
    with pytest.raises(ValueError, match="no kind"):
        info.dtypes(kind="floats")


@pytest.mark.parametrize("a", DTYPES)
def test_types_cast_where_promotion_gives_them(a: str) -> None:
    for b in DTYPES:
        try:
            common = mm.result_type(DTYPES[a], mm.zeros(1, dtype=b))
        except DTypeError:
            assert not mm.can_cast(a, b)
        else:
            assert mm.can_cast(DTYPES[a], b) is (common.name == b)
            assert mm.can_cast(mm.zeros(1, dtype=a), DTYPES[b]) is (common.name == b)


def test_types_of_results_with_python_numbers() -> None:
    x = np.zeros(2, np.float32)
    assert mm.result_type(mm.int8, 1) is mm.int8
    assert mm.result_type(x, 1j) is mm.complex64
    assert mm.result_type(1, 2.0) is mm.float32
    with pytest.raises(TypeError, match="needs at least one"):
        mm.result_type()
    assert mm.result_type(mm.int8, 1.0) is mm.float32
    assert mm.result_type(mm.int32, 1.0) is mm.float64


# the namespace and its devices -------------------------------------------------------------------


def test_namespace_says_what_it_is() -> None:
    x, info = mm.ones(2), mm.__array_namespace_info__()
    assert x.__array_namespace__() is x.__array_namespace__(api_version="2025.12") is mm
    assert mm.__array_api_version__ == "2025.12"
    with pytest.raises(ValueError, match=r"'2030.12' is not known; there are 2021.12, "):
        x.__array_namespace__(api_version="2030.12")
    most = info.capabilities()["max dimensions"]
    assert mm.sum(mm.ones((1,) * most) + 1).item() == 2
    x = mm.asarray(np.ones((1,) * most))
    assert (mm.exp(x) @ x).sum().item() == np.e
    for many in (
        lambda: mm.asarray(np.ones((1,) * most + (2,))),
        lambda: mm.zeros((1,) * 100),
        lambda: x[None],
        lambda: mm.compile(lambda x: mm.expand_dims(x, 0))(x),
    ):
        with pytest.raises(ShapeError, match=f"at most {most} dimensions, this one would have"):
            many()
    defaults = info.default_dtypes()
    assert mm.zeros(1).dtype is defaults["real floating"]
    assert mm.asarray(1j).dtype is defaults["complex floating"]
    assert mm.arange(1).dtype is defaults["integral"]
    assert mm.argmax(x).dtype is defaults["indexing"]


def test_devices_are_those_of_the_pool() -> None:
    info = mm.__array_namespace_info__()
    device = mm.zeros(1).device
    assert info.devices() == (info.default_device(),) == (device,)
    x = mm.ones(2, device=device)
    assert x.to_device(device) is x
    for make in (
        lambda: mm.asarray([1], device="tpu"),
        lambda: mm.arange(3, device="tpu"),
        lambda: mm.empty_like(x, device="tpu"),
        lambda: mm.astype(x, "int8", device="tpu"),
        lambda: mm.from_dlpack(np.ones(2), device="tpu"),
        lambda: x.to_device("tpu"),
        lambda: info.dtypes(device="tpu"),
    ):
        with pytest.raises(DeviceError, match=r"computes on 'cpu', not on 'tpu'.*mm.init"):
            make()
    with pytest.raises(ValueError, match="takes no stream"):
        x.to_device(device, stream=1)


# creation ----------------------------------------------------------------------------------------


def test_asarray_copies_where_it_may_and_must() -> None:
    x = mm.asarray([1.0, 2.0])
    assert mm.asarray(x, copy=False) is mm.asarray(x) is mm.asarray(x, dtype="float32") is x
    copy = mm.asarray(x, copy=True)
    copy += 1
    assert (x.tolist(), copy.tolist()) == ([1, 2], [2, 3])
    for value, dtype in ((np.ones(2), None), ([1.0], None), (x, "int8")):
        with pytest.raises(ValueError, match="copy=False"):
            mm.asarray(value, dtype=dtype, copy=False)


def test_numbers_are_not_rounded_on_their_way_to_a_type() -> None:
    third = 1 / 3
    assert mm.asarray([third], dtype="float64").tolist() == [third]
    assert mm.asarray(third, dtype="float64").item() == third
    assert mm.asarray([1j * third], dtype="complex128").tolist() == [1j * third]
    assert mm.asarray(2**64 - 1, dtype="uint64").item() == 2**64 - 1
    assert mm.asarray(np.arange(3, dtype=">i2")).tolist() == [0, 1, 2]
    assert mm.asarray(memoryview(b"abc")).tolist() == [97, 98, 99]


NUMBERS = st.floats(-100, 100, width=32)


@given(start=NUMBERS, stop=NUMBERS, num=st.integers(0, 9), endpoint=st.booleans(),
       name=st.sampled_from(["float32", "float64", "complex128"]))  # fmt: skip
def test_linspace_is_numpys(start: Any, stop: Any, num: int, endpoint: bool, name: str) -> None:
    if name == "complex128":
        stop = stop * 1j
    ours = mm.linspace(start, stop, num, endpoint=endpoint, dtype=name).numpy()
    theirs = np.linspace(start, stop, num, endpoint=endpoint, dtype=name)
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-5)
    if endpoint and num > 1:
        assert ours[-1] == np.asarray(stop, name)
    expected = "complex64" if isinstance(stop, complex) else "float32"
    assert mm.linspace(start, stop, num).dtype.name == expected


@given(start=NUMBERS, stop=NUMBERS, step=st.sampled_from([0.5, -0.25, 3.0, -7.5]))
def test_arange_of_floats_is_numpys(start: float, stop: float, step: float) -> None:
    ours, theirs = mm.arange(start, stop, step).numpy(), np.arange(start, stop, step)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-5)


def test_arange_of_large_and_of_unsigned_integers() -> None:
    top = 2**62
    assert mm.arange(top, top + 3).tolist() == [top, top + 1, top + 2]
    top = 2**64 - 1
    assert mm.arange(top - 2, top, dtype="uint64").tolist() == [top - 2, top - 1]
    assert mm.arange(-128, 128, 100, dtype="int8").tolist() == [-128, -28, 72]


@given(data=st.data(), kind=st.sampled_from(KINDS))
def test_triangles_and_grids_are_numpys(data: st.DataObject, kind: tuple[str, int]) -> None:
    extents = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    vectors = [np.arange(n) * 1.5 for n in extents]
    indexing = data.draw(st.sampled_from(["xy", "ij"]))
    with current(*kind):
        given = [mm.asarray(v, layout=mm.Layout.cyclic(0)) for v in vectors]
        grids = mm.meshgrid(*given, indexing=indexing)
        for ours, theirs in zip(grids, np.meshgrid(*vectors, indexing=indexing), strict=True):
            np.testing.assert_array_equal(ours.numpy(), theirs)
        if len(extents) < 2:
            return
        k = data.draw(st.integers(-4, 4))
        values = np.arange(np.prod(extents)).reshape(extents) + 1
        x = mm.asarray(values, layout=mm.Layout.split(len(extents) - 2))
        np.testing.assert_array_equal(mm.tril(x, k=k).numpy(), np.tril(values, k))
        np.testing.assert_array_equal(mm.triu(x, k=k).numpy(), np.triu(values, k))


def test_diagonals_beyond_the_corners() -> None:
    for k in (-(10**20), -3, 4, 10**20):
        assert mm.eye(3, 4, k=k).numpy().sum() == 0
        inside = mm.tril(mm.ones((3, 4)), k=k), mm.triu(mm.ones((3, 4)), k=k)
        assert [int(mm.sum(x)) for x in inside] == ([12, 0] if k > 0 else [0, 12])


def test_arrays_like_others() -> None:
    x = mm.zeros((2, 3), dtype="int16")
    assert (mm.empty_like(x).shape, mm.empty_like(x).dtype) == ((2, 3), mm.int16)
    assert mm.ones_like(x, dtype="float64").tolist() == [[1.0] * 3] * 2
    with pytest.raises(ShapeError, match="tril: needs 1 or more dimensions"):
        mm.tril(mm.asarray(1.0))
    assert mm.meshgrid(x, x)[0].shape == (6, 6)  # arrays of two dimensions are flattened
    with pytest.raises(ValueError, match="indexing must be"):
        mm.meshgrid(mm.ones(2), indexing="yx")


# exchange ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("name", STANDARD)
def test_arrays_go_to_other_libraries_and_back(name: str, kind: tuple[str, int]) -> None:
    values = np.asarray([[0, 1], [2, 3], [0, 5]]).astype(name)
    with current(*kind):
        x = mm.asarray(values, layout=mm.Layout.split(0))
        theirs = np.from_dlpack(x)
        np.testing.assert_array_equal(theirs, values)
        assert theirs.dtype == name
        assert torch.equal(torch.from_dlpack(x), torch.from_numpy(values))
        for library in (values, torch.from_numpy(values), values.T):
            back = mm.from_dlpack(library)
            assert back.dtype.name == name
            np.testing.assert_array_equal(back.numpy(), np.asarray(library))
        assert mm.from_dlpack(x) is x
        assert mm.from_dlpack(x, copy=True) is not x
        assert x.__dlpack_device__() == (1, 0)


@given(data=st.data())
def test_arrays_of_any_strides_are_taken(data: st.DataObject) -> None:
    values = np.arange(24).reshape(2, 3, 4)
    steps = tuple(slice(None, None, data.draw(st.sampled_from([-2, -1, 1, 2]))) for _ in range(3))
    view = values[steps].transpose(data.draw(st.permutations(range(3))))
    np.testing.assert_array_equal(mm.from_dlpack(view).numpy(), view)
    if min(view.strides) > 0:
        np.testing.assert_array_equal(mm.from_dlpack(torch.from_numpy(view)).numpy(), view)


def test_exchange_refuses_what_it_cannot_do() -> None:
    x = mm.ones(2)
    with pytest.raises(BufferError, match="copy=False"):
        mm.from_dlpack(np.ones(2), copy=False)
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError, match=r"not to device \(2, 0\)"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="no streams"):
        x.__dlpack__(stream=1)
