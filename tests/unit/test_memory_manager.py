"""The user's memory manager: elements, copies, kinds, references, and the return of memory to the
pool."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES, DType
from magmath.errors import DeviceError, DTypeError, MagmathError, ShapeError
from magmath.memory import MemoryKind, MemoryManager, available_kinds, to_torch

KINDS = available_kinds()
ABSENT = [kind for kind in MemoryKind if kind not in KINDS]


def in_use() -> int:
    """Bytes that managers hold, in all pools."""
    gc.collect()
    return sum(counters["in_use"] for counters in MemoryManager.statistics().values())


@pytest.fixture(autouse=True)
def _nothing_stays() -> object:
    before = in_use()
    yield
    assert in_use() == before


@pytest.mark.parametrize("kind", KINDS)
@given(count=st.integers(0, 70), dtype=st.sampled_from(list(DTYPES.values())), data=st.data())
def test_elements(kind: MemoryKind, count: int, dtype: DType, data: st.DataObject) -> None:
    values = torch.from_numpy(np.random.default_rng(count).integers(0, 2, count)).to(
        to_torch(dtype)
    )
    with MemoryManager(count, dtype, kind) as memory:
        memory.copy_from(values)
        for index in data.draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=5)):
            if index < count:
                memory.set(index, 1)
                values[index] = 1
        assert [memory.get(i) for i in range(count)] == values.tolist()
        out = torch.empty_like(values)
        memory.copy_to(out)
        assert torch.equal(out, values)
        assert (len(memory), memory.nbytes) == (count, count * dtype.itemsize)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_copies_between_kinds_convert(kind: MemoryKind, other: MemoryKind) -> None:
    with MemoryManager(6, "float32", kind) as source, MemoryManager(6, "int64", other) as target:
        source.copy_from([[0, 1, 2], [3, 4, 5]])
        source.copy_to(target)
        assert [target.get(i) for i in range(6)] == list(range(6))
        target.set(2, 20)
        source.copy_from(target)
        assert source.get(2) == 20.0


@pytest.mark.skipif(MemoryKind.MANAGED not in KINDS, reason="needs a GPU")
def test_managed_copies_are_made_equal_on_demand() -> None:
    with MemoryManager(4, "float32", MemoryKind.MANAGED) as memory:
        memory.copy_from([1, 2, 3, 4])
        memory.sync("host")
        memory.on_device.mul_(2)
        assert memory.get(3) == 4.0
        memory.sync("device")
        assert memory.get(3) == 8.0


@pytest.mark.skipif(MemoryKind.CUDA_MANAGED not in KINDS, reason="needs a GPU")
def test_unified_memory_is_one() -> None:
    with MemoryManager(1000, "float32", MemoryKind.CUDA_MANAGED) as memory:
        memory.host.fill_(3)
        memory.on_device.mul_(2)
        memory.sync()
        assert (memory.host == 6).all()


@pytest.mark.skipif(MemoryKind.DEVICE not in KINDS, reason="needs a GPU")
def test_unknown_device() -> None:
    with pytest.raises(DeviceError, match="CUDA devices, numbered from 0"):
        MemoryManager(1, "float32", MemoryKind.DEVICE, device=1000)


@pytest.mark.parametrize("kind", ABSENT)
def test_absent_kinds_say_what_there_is(kind: MemoryKind) -> None:
    with pytest.raises(DeviceError, match=f"{kind.name} needs a CUDA device.*has kinds: HOST"):
        MemoryManager(10, "float32", kind)
    with pytest.raises(DeviceError, match=kind.name):
        MemoryManager(10, "float32", kind.value)


def test_host_memory_has_no_device_side() -> None:
    with MemoryManager(3) as memory:
        memory.sync()
        assert memory.host.shape == (3,)
        with pytest.raises(DeviceError, match="no copy on the device"):
            _ = memory.on_device
        with pytest.raises(DeviceError, match='"host" or "device"'):
            memory.sync("elsewhere")


def test_mistakes() -> None:
    with pytest.raises(DeviceError, match="HOST, DEVICE, MANAGED, CUDA_MANAGED"):
        MemoryManager(1, "float32", "tape")
    for kind in (None, 0, 1.5, ["host"]):
        with pytest.raises(DeviceError, match=r"is not known; the kinds are HOST, DEVICE"):
            MemoryManager(1, "float32", kind)  # type: ignore[arg-type]
    with pytest.raises(DTypeError, match="not known"):
        MemoryManager(1, "float31")
    with pytest.raises(ShapeError, match="at least 0"):
        MemoryManager(-1)
    with MemoryManager(3, "int32") as memory:
        for index in (-1, 3):
            with pytest.raises(IndexError, match="0 to 2"):
                memory.get(index)
            with pytest.raises(IndexError, match="0 to 2"):
                memory.set(index, 1)
        for wrong in (1.5, "a", None, [1]):
            with pytest.raises(TypeError, match="is no integer; pass one from 0 to 2"):
                memory.get(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="is no integer; pass one from 0 to 2"):
                memory.set(wrong, 1)  # type: ignore[arg-type]
        memory.set(np.int64(2), 7)  # type: ignore[arg-type]
        assert memory.get(np.int64(2)) == 7  # type: ignore[arg-type]
        with pytest.raises(ShapeError, match="3 elements, the other has 4"):
            memory.copy_from([1, 2, 3, 4])
        with pytest.raises(ShapeError, match="3 elements, the other has 2"):
            memory.copy_to(torch.empty(2))
    with pytest.raises(MagmathError, match="closed"):
        memory.get(0)
    with pytest.raises(MagmathError, match="closed"):
        memory.share()


def test_the_last_reference_returns_the_memory() -> None:
    before = in_use()
    first = MemoryManager(1000, "float64")
    second = first.share()
    assert (first.references, in_use() - before) == (2, 8000)
    first.set(5, 1.5)
    assert second.get(5) == 1.5
    first.close()
    first.close()
    assert (first.closed, second.closed, second.references) == (True, False, 1)
    assert in_use() - before == 8000
    assert second.get(5) == 1.5
    del second
    assert in_use() == before


def test_forgotten_memory_returns_and_is_used_again() -> None:
    def allocate() -> int:
        return MemoryManager(500, "float32").host.data_ptr()

    addresses = [allocate() for _ in range(20)]
    assert set(addresses) == {addresses[0]}
    gc.collect()
    chunks = MemoryManager.statistics()["host"]["chunks"]
    for _ in range(50):
        MemoryManager(1 << 20, "float32")
    assert MemoryManager.statistics()["host"]["chunks"] <= chunks + 1


def test_many_threads() -> None:
    """Managers made, shared and dropped in threads keep their values apart."""
    failures: list[int] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        held: list[MemoryManager] = []
        for _ in range(200):
            if held and rng.random() < 0.5:
                memory = held.pop(int(rng.integers(len(held))))
                if not (memory.host == number).all():
                    failures.append(number)
            else:
                memory = MemoryManager(int(rng.integers(1, 500)), "int32")
                memory.host.fill_(number)
                held += [memory, memory.share()]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_repr_has_size_type_and_kind() -> None:
    memory = MemoryManager(3, "int32")
    assert repr(memory) == "<MemoryManager of 3 int32, HOST>"
    memory.close()
    assert repr(memory) == "<MemoryManager of 3 int32, HOST, closed>"
