"""The source of native code, and the arguments by which it accesses the memory of a binding."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from magmath.codegen.emit import NativeCall, NativeOperand, OperandView, literal
from magmath.core.dtypes import DType
from magmath.core.index_set import IndexSet, Tile
from magmath.executor.failure_report import FailureReport
from magmath.executor.tensors import Tensors
from magmath.memory.torch_dtypes import from_torch
from magmath.program.instructions import Call

TensorFinder = Callable[[Tensors], torch.Tensor]
"""Returns a tensor of a binding."""


@final
@dataclass(frozen=True)
class NativeSegment:
    """A range of instructions in a native function.

    `reports` are those of invalid data. `divided` has a truth value for each group, in order:
    whether several threads divide it.
    """

    positions: range
    reports: list[FailureReport]
    divided: tuple[bool, ...]


@final
@dataclass(frozen=True)
class NativeSource:
    """The source of a native function, and how a binding finds the arguments of its calls.

    The function of a loop takes the number of steps, the address of the barrier memory, rank and
    number of ranks, the addresses of the results it emits and of `offsets`, and those of the
    tensors. The function of segments takes the number of a group, the address of a counter for the
    threads that divide it, the address of `offsets`, and those of the tensors.
    """

    source: str
    finders: list[TensorFinder]
    offsets: NDArray[np.int64]
    emits: int
    segments: list[NativeSegment]

    def addresses(self, tensors: Tensors) -> list[int]:
        """Return the addresses of `offsets`, and of the tensors that the function takes."""
        return [self.offsets.ctypes.data, *[find(tensors).data_ptr() for find in self.finders]]


@final
class NoNativeForm(Exception):
    """An instruction has no native form."""


def require_native_type(dtype: DType) -> None:
    """Raise NoNativeForm for types whose arithmetic the language lacks: half and complex types."""
    if dtype.name in ("float16", "bfloat16") or dtype.kind == "complex":
        raise NoNativeForm(dtype.name)


@final
class Arguments:
    """The arguments of a native function: arrays get names on first use.

    `reports` are those of invalid data that were added so far. Without `can_report`, an
    instruction whose data can be invalid has no native form.
    """

    def __init__(self, tensors: Tensors, *, can_report: bool) -> None:
        self.tensors = tensors
        self.finders: list[TensorFinder] = []
        self.types: list[str] = []
        self.offsets: list[int] = []
        self.reports: list[FailureReport] = []
        self._can_report = can_report
        self._names: dict[Hashable, str] = {}

    def operand(self, index: int) -> NativeOperand:
        """Return a slot as an operand of the source; constants as literals."""
        slot = self.tensors.program.slots[index]
        if slot.kind == "constant":
            require_native_type(slot.dtype)
            assert slot.value is not None
            assert not isinstance(slot.value, complex), "which has no native type"
            value = literal(slot.value, slot.dtype)
            return NativeOperand("", (), slot.dtype, value)
        return self.array(self.tensors.own(index), lambda tensors: tensors.own(index))

    def array(self, tensor: torch.Tensor, find: TensorFinder) -> NativeOperand:
        """Return a tensor as an operand of the source; 0-d tensors as one element."""
        dtype = from_torch(tensor.dtype)
        require_native_type(dtype)
        array = tensor.reshape(1) if tensor.ndim == 0 else tensor
        key = (tensor.data_ptr(), tuple(array.shape), array.stride(), tensor.dtype)
        if key not in self._names:
            self._names[key] = f"a{len(self.finders)}"
            self.finders.append(find)
            self.types.append(f"{dtype.name}[{', '.join(map(str, array.stride()))}]")
        name = self._names[key]
        if tensor.ndim == 0:
            return NativeOperand(name, (), dtype, f"{name}[0]")
        return NativeOperand(
            name,
            tuple(tensor.shape),
            dtype,
            strides=tuple(tensor.stride()),
            address=tensor.data_ptr(),
        )

    def native_call(self, call: Call) -> NativeCall:
        """Return an instruction as the emitters of operations receive it."""
        slots = self.tensors.program.slots
        return NativeCall(
            self.operand(call.out),
            [self.operand(i) for i in call.inputs],
            call.attributes,
            partial(self.failure_record, call),
            self.offset,
            self.tile(call.out),
            tuple(self.tile(i) for i in call.inputs),
            slots[call.out].shape,
            tuple(slots[i].shape for i in call.inputs),
        )

    def tile(self, index: int) -> Tile:
        """Return this worker's tile of a slot."""
        slot = self.tensors.program.slots[index]
        tiles = slot.layout.tiles(self.tensors.rank)
        tile = tiles[0] if tiles else tuple(IndexSet.range(0, 0) for _ in slot.shape)
        if not all(index_set.is_range for index_set in tile):
            raise NoNativeForm("a tile of several separate ranges")
        return tile

    def offset(self, value: int) -> str:
        """Return an expression for an integer that may differ between workers."""
        self.offsets.append(value)
        return f"offsets[{len(self.offsets) - 1}]"

    def failure_record(self, call: Call, error: Callable[[int], Exception]) -> str:
        """Return the name of the record in which native code reports invalid data of a call."""
        if not self._can_report:
            raise NoNativeForm("invalid data must be found before anything is overwritten")
        record = torch.zeros(2, dtype=torch.int64)
        self.reports.append(FailureReport(record, error, call))
        return self.array(record, lambda tensors: record).name


def view_finder(view: OperandView, call: NativeCall, slot: int) -> TensorFinder:
    """Return a function that returns a view of a slot, which exists in every binding."""

    def find(tensors: Tensors) -> torch.Tensor:
        tensor = view(call, tensors.own(slot))
        assert tensor is not None
        return tensor

    return find
