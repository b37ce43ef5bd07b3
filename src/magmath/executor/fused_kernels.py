"""Fused kernels of a GPU: runs of element-wise instructions as one Triton kernel each.

Instructions of one shape join a kernel as long as each element depends on the same element of the
others. Intermediate values that nothing reads afterwards are never stored.

The expressions are written to round as torch's kernels do, so that results do not depend on how
often a program has run. As a check, a kernel replaces its instructions only after it has given
equal results for the data of a step. That is a sample: functions of libdevice that differ from
torch's for other numbers only, which is possible with another CUDA version, are not found.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import torch

from magmath.codegen import triton_kernels
from magmath.codegen.triton_kernels import TritonKernel
from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.type_aliases import BoundCall
from magmath.executor.tensors import Tensors
from magmath.memory.torch_dtypes import from_torch
from magmath.ops import OPERATIONS
from magmath.program.instructions import Call

logger = logging.getLogger(__name__)
ALIGNMENT = 16
"""Bytes by which Triton distinguishes aligned pointers; what is written is aligned."""
MIN_CALLS = 2
"""Minimum instructions of a kernel."""

_kernels: RecentlyUsed[Hashable, TritonKernel] = RecentlyUsed(512)
"""The kernels by names, types and lines: equal expressions on equal shapes share one."""


@final
class FusedKernel:
    """A kernel on the tensors of a range of instructions."""

    def __init__(
        self,
        positions: range,
        kernel: TritonKernel,
        read: list[torch.Tensor],
        written: list[torch.Tensor],
    ) -> None:
        self.positions, self._kernel = positions, kernel
        self._read, self._written = read, written
        self._count = written[0].numel()
        kernel.build([*read, *written], self._count)

    @property
    def source(self) -> str:
        """The source of the kernel."""
        return self._kernel.source

    def is_ready(self) -> bool:
        """Return True once it is compiled, or has failed."""
        return self._kernel.is_ready()

    def call(self) -> None:
        """Compute all results."""
        self._kernel.launch([*self._read, *self._written], self._count)

    def verify(self, compute: BoundCall) -> bool:
        """Compute the results by `compute`; return True if the kernel gives the same bits for the
        same operands."""
        results: list[torch.Tensor] = []
        try:
            for x in self._written:
                results.append(
                    torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
                )
            self._kernel.launch([*self._read, *results], self._count)
        except Exception as error:  # of the compiler, or too little memory
            logger.info("a fused kernel is not used: %s", error)
            results = []
        compute()
        if not results or any(x.data_ptr() % ALIGNMENT for x in self._written):
            return False
        try:
            return all(_are_equal(x, y) for x, y in zip(results, self._written, strict=True))
        except torch.cuda.OutOfMemoryError:
            return False


def _are_equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return True if all elements have the same bits, or are nan in both."""
    if not x.is_floating_point():
        return torch.equal(x, y)
    bits = torch.int32 if x.itemsize == 4 else torch.int64
    same = (x.view(bits) == y.view(bits)) | (x.isnan() & y.isnan())
    return bool(same.all())


def fused_kernels(tensors: Tensors, runs: Sequence[range]) -> list[FusedKernel]:
    """Return the kernels of these runs of instructions, whose compilation begins."""
    kernels = []
    for run in runs:
        for group in _groups(tensors, run):
            if len(group.positions) >= MIN_CALLS and (kernel := group.kernel()) is not None:
                kernels.append(kernel)
    return kernels


def _groups(tensors: Tensors, run: range) -> Iterator[_Group]:
    """Yield maximal groups of neighbouring instructions that one kernel can compute."""
    group: _Group | None = None
    for position in run:
        call = tensors.program.instructions[position]
        assert isinstance(call, Call)
        if group is not None and group.join(position, call):
            continue
        if group is not None:
            yield group
        group = _Group(tensors)
        if not group.join(position, call):
            group = None
    if group is not None:
        yield group


@final
@dataclass
class _Group:
    """Instructions of one shape, as lines of a kernel.

    `values` maps the place of a tensor to the name of its value; `loaded` and `stored` are the
    tensors that the instructions read from memory and write. `order`: the dimensions of the first
    result as it is stored, outermost first.
    """

    tensors: Tensors
    positions: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[_Place, str] = field(default_factory=dict)
    loaded: dict[_Place, torch.Tensor] = field(default_factory=dict)
    stored: dict[_Place, tuple[torch.Tensor, int]] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def join(self, position: int, call: Call) -> bool:
        """Add an instruction; return False if it must be in another kernel."""
        program = self.tensors.program
        if not OPERATIONS[call.operation].is_elementwise:
            return False
        out = self.tensors.own(call.out)
        operands = [self.tensors.own(i) for i in call.inputs]
        if not out.numel() or (self.stored and out.shape != self._shape):
            return False
        kinds = [program.slots[i].dtype.name for i in call.inputs]
        text = triton_kernels.expression(call.operation, program.slots[call.out].dtype.name, kinds)
        if text is None or not self._is_independent(out, operands):
            return False
        if not self.stored:
            self.order = sorted(range(out.ndim), key=lambda d: -out.stride()[d])
        names = [
            _literal(x) if program.slots[i].kind == "constant" else self._operand(x, out.shape)
            for i, x in zip(call.inputs, operands, strict=True)
        ]
        name = f"v{len(self.positions)}"
        self.lines.append(f"{name} = {text.format(*names)}")
        self.values[_place(out)] = name
        self.stored[_place(out)] = out, call.out
        self.positions.append(position)
        return True

    @property
    def _shape(self) -> torch.Size:
        return next(iter(self.stored.values()))[0].shape

    def _is_independent(self, out: torch.Tensor, operands: Sequence[torch.Tensor]) -> bool:
        """Return True if each element depends on the same element of the results of the group."""
        written = [x for x, _ in self.stored.values()]
        for x in operands:
            if any(_overlaps(x, y) and not _is_same(x, y, out.shape) for y in written):
                return False
        before = [*self.loaded.values(), *written, *operands]
        return not any(_overlaps(out, x) and not _is_same(x, out, out.shape) for x in before)

    def _operand(self, x: torch.Tensor, shape: torch.Size) -> str:
        """Return the name of an operand's value: a value of the group, or one that it loads."""
        location = _place(x)
        if location not in self.values:
            pointer = f"a{len(self.loaded)}"
            where = self._offset(x, shape)
            load = (
                f"tl.load({pointer})"
                if where is None
                else f"tl.load({pointer} + {where}, mask=inside)"
            )
            self.loaded[location] = x
            self.values[location] = f"x{len(self.loaded)}"
            self.lines.append(f"{self.values[location]} = {load}")
        return self.values[location]

    def _offset(self, x: torch.Tensor, shape: torch.Size) -> str | None:
        """Return the place of element i in a tensor that broadcasts to a shape; None if it is the
        first one for all. The elements are counted in the memory order of the first result, so that
        neighbouring threads access neighbouring elements."""
        strides = x.expand(shape).stride()
        pairs = [(shape[d], strides[d]) for d in self.order]
        return _index_expression(pairs)

    def kernel(self) -> FusedKernel | None:
        """Return the kernel, which stores what is read after it; None if nothing is."""
        program, shape = self.tensors.program, self._shape
        lines, written = list(self.lines), list[torch.Tensor]()
        for location, (out, slot) in self.stored.items():
            base = program.slots[program.root(slot)]
            if base.kind == "temporary" and base.last <= self.positions[-1]:
                continue
            where = self._offset(out, shape) or "i"
            lines.append(
                f"tl.store(b{len(written)} + {where}, {self.values[location]}, mask=inside)"
            )
            written.append(out)
        if not written:
            return None
        read = list(self.loaded.values())
        names = [f"a{i}" for i in range(len(read))] + [f"b{i}" for i in range(len(written))]
        kinds = [(x.dtype, x.data_ptr() % ALIGNMENT == 0) for x in (*read, *written)]
        count = shape.numel()
        key = tuple(lines), tuple(kinds), count == 1, count % ALIGNMENT == 0
        kernel = _kernels.find(key)
        if kernel is None:
            kernel = TritonKernel(names, lines)
            _kernels.store(key, kernel)
        return FusedKernel(range(self.positions[0], self.positions[-1] + 1), kernel, read, written)


_Place = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


def _place(x: torch.Tensor) -> _Place:
    return x.data_ptr(), x.shape, x.stride(), x.dtype


def _span(x: torch.Tensor) -> tuple[int, int]:
    """Return the first and last byte of a tensor's elements; strides are not negative."""
    last = sum([(n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)])
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.itemsize


def _overlaps(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return True if two tensors may have memory in common."""
    if x.device != y.device or not x.numel() or not y.numel():
        return False
    (first, last), (begin, end) = _span(x), _span(y)
    return first < end and begin < last


def _is_same(x: torch.Tensor, y: torch.Tensor, shape: torch.Size) -> bool:
    """Return True if both are the same elements, each in the same place of a shape."""
    return _place(x) == _place(y) and x.shape == shape


def _literal(x: torch.Tensor) -> str:
    """Return a number in host memory as text."""
    value, kind = x.item(), from_torch(x.dtype).name
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        text = f'float("{value}")'
    else:
        text = repr(int(value)) if isinstance(value, bool) else repr(value)
    if text == "-0.0":  # which Triton takes for 0
        return f"(tl.full([BLOCK], 0.0, {triton_kernels.TYPES[kind]}) * -1.0)"
    return f"tl.full([BLOCK], {text}, {triton_kernels.TYPES[kind]})"


@final
class _Dimension(NamedTuple):
    """One or several dimensions that one stride traverses; `behind`: the elements of the dimensions
    behind them."""

    behind: int
    extent: int
    stride: int


def _index_expression(dimensions: Sequence[tuple[int, int]]) -> str | None:
    """Return the place of element i of these dimensions, each an extent and a stride, outermost
    first; None if it is the first one for all."""
    joined, count = list[_Dimension](), 1
    for n, stride in reversed(dimensions):
        if n > 1:
            last = joined[-1] if joined else None
            if last is not None and stride and last.stride * last.extent == stride:
                joined[-1] = last._replace(extent=last.extent * n)
            else:
                joined.append(_Dimension(count, n, stride))
        count *= n
    parts = []
    for behind, extent, stride in joined:
        if not stride:
            continue
        index = "i" if behind == 1 else f"(i // {behind})"
        if behind * extent < count:
            index = f"({index} % {extent})"
        parts.append(index if stride == 1 else f"{index} * {stride}")
    return " + ".join(parts) or None
