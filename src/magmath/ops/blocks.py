"""Reductions of operands that are never stored: computed block by block, each reduced at once.

`passes/blocks.py` makes these operations of reductions whose operand would not fit: sums over
created arrays (filled, counted, random), broadcasts and element-wise functions of these and of
others. A block has the size that caches hold. The operand's expression travels as plain data:
which operation, of which of the blocks before it or of the operands, with which attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from magmath.core.dtypes import DType
from magmath.core.index import IndexSet, Tile, tile_shape
from magmath.core.shapes import reduced_shape
from magmath.graph import LocalCall, Node, Operation, Shape
from magmath.graph.structure import LOGICAL_PARTS
from magmath.layout import Layout, even_cuts
from magmath.ops.reductions import BY_NAME, identity
from magmath.ops.rules import no_gradient

if TYPE_CHECKING:
    import torch

BLOCK: Final = 1 << 17
"""Elements of a block: 1 MB of float64."""
PAIRWISE: Final = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
"""The operations by which the results of two blocks are combined."""

Range = tuple[int, int]


class Step(NamedTuple):
    """One operation of the operand's expression.

    `sources`: what it is computed of, steps by their number, and operand i of the reduction as
    -1 - i. `shape` is that of the whole array.
    """

    operation: str
    attributes: tuple[tuple[str, Any], ...]
    sources: tuple[int, ...]
    shape: Shape
    dtype: DType


def _infer(*_: Node, layout: Any, axis: Shape, keepdims: bool, dtype: DType, **__: Any) -> Any:
    return reduced_shape(tuple(layout[0]), axis, keepdims), dtype


def _axes(node: Node) -> str:
    """It is made of a reduction that has been divided already, and is never divided again."""
    return f"{','.join('.' * x.ndim for x in node.inputs)}->{'.' * node.ndim}"


def _kernel(call: LocalCall) -> Callable[[], object]:
    return BlockReduction(call).run


def _reference(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("the reduction from which this was made has a reference")


REDUCE_BLOCKS = Operation(
    name="reduce_blocks",
    infer=_infer,
    axes=_axes,
    reduction=None,
    vjp=no_gradient,
    kernel=_kernel,
    native=None,
    reference=_reference,
    flops=lambda node: float(node.attributes["flops"]),
)
OPERATIONS = {REDUCE_BLOCKS.name: REDUCE_BLOCKS}


@final
class BlockReduction:
    """A `reduce_blocks` on one worker's part of the operand."""

    def __init__(self, call: LocalCall) -> None:
        attributes = call.attributes
        self._call = call
        self._reduction = BY_NAME[attributes["reduction"]]
        self._axis: Shape = attributes["axis"]
        self._steps = [Step(*step) for step in attributes["steps"]]
        layout = Layout.decode(attributes["layout"])
        tiles = layout.tiles(call.context.rank)
        self._tile: Tile = tiles[0] if tiles else tuple(IndexSet.range(0, 0) for _ in layout.shape)
        self._ranges = self._cut(layout.shape)
        self._memory: dict[tuple[int, Shape], torch.Tensor] = {}
        self._bound: dict[tuple[int, Shape], Callable[[], object]] = {}

    def run(self) -> None:
        """Compute the result."""
        kept = [r if d not in self._axis else [(0, 0)] for d, r in enumerate(self._ranges)]
        reduced = [r if d in self._axis else [(0, 0)] for d, r in enumerate(self._ranges)]
        for outer in product(*kept):
            total: torch.Tensor | None = None
            for inner in product(*reduced):
                pairs = zip(outer, inner, strict=True)
                block = [i if d in self._axis else o for d, (o, i) in enumerate(pairs)]
                total = self._combined(total, self._reduced(block))
            out = self._call.out[self._selection(outer)]
            if total is None:
                out.fill_(identity(self._reduction.name, self._call.attributes["dtype"]))
            else:
                out.copy_(total.reshape(out.shape))

    def _cut(self, shape: Shape) -> list[list[Range]]:
        """The ranges of local positions into which blocks divide each dimension.

        In deterministic mode no block crosses a logical part of the result, and all workers make
        the same blocks of a part.
        """
        cuts = [[0, index.size] for index in self._tile]
        longest = [index.size for index in self._tile]
        divided = [d for d, n in enumerate(shape) if d not in self._axis and n > 1]
        if self._call.context.deterministic and divided:
            d = divided[0]
            held, parts = self._tile[d], even_cuts(shape[d], LOGICAL_PARTS)
            cuts[d] = [cut - held.start for cut in parts if held.start <= cut <= held.stop]
            longest[d] = max((b - a for a, b in pairwise(parts)), default=0)
        left, lengths = BLOCK, list(longest)
        for d in reversed(range(len(shape))):
            lengths[d] = max(1, min(longest[d], left))
            left //= lengths[d]
        return [
            [
                (start, min(start + length, stop))
                for a, stop in pairwise(cut)
                for start in range(a, stop, length)
            ]
            for cut, length in zip(cuts, lengths, strict=True)
        ]

    def _selection(self, block: Sequence[Range]) -> tuple[slice, ...]:
        """A block's part of the local result."""
        keepdims = self._call.attributes["keepdims"]
        return tuple(
            [
                slice(None) if d in self._axis else slice(*span)
                for d, span in enumerate(block)
                if keepdims or d not in self._axis
            ]
        )

    def _reduced(self, block: Sequence[Range]) -> torch.Tensor:
        """The reduction of one block of the operand."""
        import torch

        value = self._operand(block)
        wide = {torch.complex64: torch.complex128}.get(value.dtype, torch.float64)
        sums = self._reduction.name in ("sum", "prod")
        narrow = value.dtype.is_floating_point or value.dtype.is_complex
        dtype = wide if sums and narrow else self._call.out.dtype
        shape = reduced_shape(tuple(value.shape), self._axis, True)
        result = torch.empty(shape, dtype=dtype, device=value.device)
        attributes = {"axis": self._axis, "keepdims": True}
        self._made(self._reduction, attributes, result, [value], ())()
        return result

    def _combined(self, total: torch.Tensor | None, part: torch.Tensor) -> torch.Tensor:
        from magmath.ops import OPERATIONS

        if total is None:
            return part
        combine = OPERATIONS[PAIRWISE[self._reduction.name]]
        self._made(combine, {}, total, [total, part], ())()
        return total

    def _operand(self, block: Sequence[Range]) -> torch.Tensor:
        """A block of the operand."""
        values: list[torch.Tensor] = []
        for number, step in enumerate(self._steps):
            spans = _aligned(step.shape, block)
            shape = tuple([b - a for a, b in spans])
            out = self._scratch(number, shape, step.dtype)
            ready = self._bound.get((number, shape))
            if ready is None:
                ready = self._step(step, spans, block, out, values)
                if self._is_same_for_all(step):
                    self._bound[number, shape] = ready
            ready()
            values.append(out)
        return values[-1]

    def _is_same_for_all(self, step: Step) -> bool:
        """True if a step's call depends on nothing of a block but its shape."""
        from magmath.ops import OPERATIONS

        numbers = [-1 - source for source in step.sources if source < 0]
        scalar = all(self._call.inputs[number].ndim == 0 for number in numbers)
        return scalar and OPERATIONS[step.operation].elementwise

    def _step(
        self,
        step: Step,
        spans: Sequence[Range],
        block: Sequence[Range],
        out: torch.Tensor,
        values: Sequence[torch.Tensor],
    ) -> Callable[[], object]:
        """The ready call that computes a step's part of a block."""
        from magmath.ops import OPERATIONS

        inputs = [
            values[source] if source >= 0 else self._given(-1 - source, block)
            for source in step.sources
        ]
        indices = self._tile[len(self._tile) - len(step.shape) :]
        tile = tuple(
            [
                index.portion(*span) if n != 1 else IndexSet.range(0, 1)
                for index, span, n in zip(indices, spans, step.shape, strict=True)
            ]
        )
        attributes = dict(step.attributes)
        if "shape" in attributes:
            attributes["shape"] = tile_shape(tile)
        operation = OPERATIONS[step.operation]
        return self._made(operation, attributes, out, inputs, tile, step.shape)

    def _given(self, number: int, block: Sequence[Range]) -> torch.Tensor:
        """The part of an operand that a block needs."""
        x = self._call.inputs[number]
        if x.ndim == 0:
            return x
        whole = self._call.shapes[number]
        part = x[tuple([slice(*span) for span in _aligned(whole, block)])]
        return part.contiguous() if self._call.context.deterministic else part

    def _made(
        self,
        operation: Operation,
        attributes: Mapping[str, Any],
        out: torch.Tensor,
        inputs: list[torch.Tensor],
        tile: Tile,
        shape: Shape = (),
    ) -> Callable[[], object]:
        call = LocalCall(
            out, inputs, attributes, tile, [()] * len(inputs), shape,
            [tuple(x.shape) for x in inputs], self._call.context,
        )  # fmt: skip
        return operation.kernel(call)

    def _scratch(self, number: int, shape: Shape, dtype: DType) -> torch.Tensor:
        """The memory of a step, used again for the next block."""
        import torch

        from magmath.memory.tensors import to_torch

        found = self._memory.get((number, shape))
        if found is None:
            found = torch.empty(shape, dtype=to_torch(dtype), device=self._call.out.device)
            self._memory[number, shape] = found
        return found


def _aligned(shape: Shape, block: Sequence[Range]) -> list[Range]:
    """The part of an array that takes part in a block of the operand to which it is stretched."""
    spans = block[len(block) - len(shape) :]
    return [span if n != 1 else (0, 1) for n, span in zip(shape, spans, strict=True)]
