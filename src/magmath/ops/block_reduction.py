"""Reductions of operands that are never stored: each block is computed and reduced at once.

`passes/reduce_in_blocks.py` builds these operations from reductions whose operand would take too
much of a worker's memory: created arrays (filled, counted, random), broadcasts, and element-wise
functions of these and other arrays. A block fits into the cache. The operand's expression is sent
as plain data: a list of steps with operation, attributes and sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from magmath.core.dtypes import DType
from magmath.core.index_set import IndexSet, Tile, tile_shape
from magmath.core.shapes import reduced_shape
from magmath.core.type_aliases import BoundCall
from magmath.graph import KernelCall, Node, Operation, Shape
from magmath.graph.index_notation import LOGICAL_PARTS
from magmath.layout import Layout, even_cuts
from magmath.ops import creation, elementwise
from magmath.ops.reductions import REDUCTIONS
from magmath.ops.shared_fields import unreachable, vjp_after_gradients
from magmath.ops.sums import BROADCAST, identity_element

if TYPE_CHECKING:
    import torch

BLOCK: Final = 1 << 18
"""Elements per block: 1 MB of float32."""
PAIRWISE: Final = {
    "sum": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
"""Reduction → element-wise operation that combines the results of two blocks."""
STEPS: Final = {**elementwise.OPERATIONS, **creation.OPERATIONS, BROADCAST.name: BROADCAST}
"""The operations of which the operand's expression can consist."""

Range = tuple[int, int]
BlockRanges = tuple[Range, ...]
"""A range for each dimension of the operand, in local positions."""


@final
class ExpressionStep(NamedTuple):
    """One operation of the operand's expression.

    `sources` are its inputs: a step by its number, operand i of the reduction as -1 - i. `shape`
    is the global shape.
    """

    operation: str
    attributes: tuple[tuple[str, Any], ...]
    sources: tuple[int, ...]
    shape: Shape
    dtype: DType


def _infer(*_: Node, layout: Any, axis: Shape, keepdims: bool, dtype: DType, **__: Any) -> Any:
    return reduced_shape(tuple(layout[0]), axis, keepdims), dtype


def _axes(node: Node) -> str:
    """Return index notation without letters: the original reduction is already distributed."""
    return f"{','.join('.' * x.ndim for x in node.inputs)}->{'.' * node.ndim}"


def _kernel(call: KernelCall) -> BoundCall:
    return BlockReduction(call).run


REDUCE_BLOCKS = Operation(
    name="reduce_blocks",
    infer=_infer,
    axes=_axes,
    reduction=None,
    vjp=vjp_after_gradients,
    kernel=_kernel,
    native=None,
    reference=unreachable,
    flops=lambda node: float(node.attributes["flops"]),
)
OPERATIONS = {REDUCE_BLOCKS.name: REDUCE_BLOCKS}


@final
class BlockReduction:
    """A `reduce_blocks` on one worker's tile of the operand.

    The worker's threads share the blocks, and each thread computes its blocks from beginning to
    end: threads that synchronized after every operation of a block would mostly wait.
    """

    def __init__(self, call: KernelCall) -> None:
        attributes = call.attributes
        self._call = call
        self._reduction = REDUCTIONS[attributes["reduction"]]
        self._axis: Shape = attributes["axis"]
        self._steps = [ExpressionStep(*step) for step in attributes["steps"]]
        layout = Layout.decode(attributes["layout"])
        tiles = layout.tiles(call.context.rank)
        self._tile: Tile = tiles[0] if tiles else tuple(IndexSet.range(0, 0) for _ in layout.shape)
        ranges = self._block_ranges(layout.shape)
        self._kept = [r if d not in self._axis else [(0, 0)] for d, r in enumerate(ranges)]
        self._reduced = [r if d in self._axis else [(0, 0)] for d, r in enumerate(ranges)]

    def run(self) -> None:
        """Compute the result."""
        import torch

        from magmath.kernels.thread_count import single_threaded

        count = prod(map(len, self._kept)) * prod(map(len, self._reduced))
        on_cpu = self._call.out.device.type == "cpu"
        threads = min(torch.get_num_threads(), count) if on_cpu else 1
        if not count:
            self._call.out.fill_(
                identity_element(self._reduction.name, self._call.attributes["dtype"])
            )
        elif threads == 1:
            self._finish([self._reduce(0, count)])
        else:
            with single_threaded(), ThreadPoolExecutor(threads) as pool:
                shares = pairwise(even_cuts(count, threads))
                self._finish(pool.map(lambda share: self._reduce(*share), shares))

    def _reduce(self, first: int, last: int) -> list[tuple[BlockRanges, torch.Tensor]]:
        """Reduce the blocks first … last - 1.

        Stores each part of the result to which these blocks contribute alone; returns the partial
        results of the other parts, in order.
        """
        evaluator, partial_results = _Evaluator(self._call, self._steps, self._tile), []
        inner = prod(map(len, self._reduced))
        for number, outer in enumerate(product(*self._kept)):
            begin, end = max(first - number * inner, 0), min(last - number * inner, inner)
            total: torch.Tensor | None = None
            for span in islice(product(*self._reduced), begin, max(begin, end)):
                pairs = enumerate(zip(outer, span, strict=True))
                block = tuple([i if d in self._axis else o for d, (o, i) in pairs])
                total = self._combined(total, self._partial(evaluator.operand(block)))
            if total is not None and end - begin == inner:
                self._store(outer, total)
            elif total is not None:
                partial_results.append((outer, total))
        return partial_results

    def _finish(self, shares: Iterable[list[tuple[BlockRanges, torch.Tensor]]]) -> None:
        """Combine the partial results of several threads for each part of the result."""
        totals: dict[BlockRanges, torch.Tensor] = {}
        for outer, part in (entry for share in shares for entry in share):
            totals[outer] = self._combined(totals.get(outer), part)
        for outer, total in totals.items():
            self._store(outer, total)

    def _block_ranges(self, shape: Shape) -> list[list[Range]]:
        """Return, for each dimension, the ranges of local positions of the blocks.

        In deterministic mode no block crosses a logical part of the result, and all workers divide
        a part into the same blocks.
        """
        cuts = [[0, index.size] for index in self._tile]
        longest = [index.size for index in self._tile]
        divided = [d for d, n in enumerate(shape) if d not in self._axis and n > 1]
        if self._call.context.deterministic and divided:
            d = divided[0]
            stored_indices, parts = self._tile[d], even_cuts(shape[d], LOGICAL_PARTS)
            cuts[d] = [
                cut - stored_indices.start
                for cut in parts
                if stored_indices.start <= cut <= stored_indices.stop
            ]
            longest[d] = max(b - a for a, b in pairwise(parts))
        elements_left, lengths = BLOCK, list(longest)
        for d in reversed(range(len(shape))):
            lengths[d] = max(1, min(longest[d], elements_left))
            elements_left //= lengths[d]
        return [
            [
                (start, min(start + length, stop))
                for a, stop in pairwise(bounds)
                for start in range(a, stop, length)
            ]
            for bounds, length in zip(cuts, lengths, strict=True)
        ]

    def _store(self, outer: BlockRanges, total: torch.Tensor) -> None:
        """Write a part of the local result."""
        keepdims = self._call.attributes["keepdims"]
        selectors = [
            slice(None) if d in self._axis else slice(*span)
            for d, span in enumerate(outer)
            if keepdims or d not in self._axis
        ]
        out = self._call.out[tuple(selectors)]
        out.copy_(total.reshape(out.shape))

    def _partial(self, value: torch.Tensor) -> torch.Tensor:
        """Reduce one block of the operand."""
        out = self._call.out
        result = out.new_empty(reduced_shape(tuple(value.shape), self._axis, True))
        attributes = {"axis": self._axis, "keepdims": True}
        _bound(self._call, self._reduction, attributes, result, [value])()
        return result

    def _combined(self, total: torch.Tensor | None, part: torch.Tensor) -> torch.Tensor:
        """Combine two partial results.

        Floating-point sums and products are combined in float64 or complex128, so that they are
        rounded to the result's type only once.
        """
        import torch

        if self._reduction.name in ("sum", "prod"):
            if part.is_complex():
                part = part.to(torch.complex128)
            elif part.is_floating_point():
                part = part.to(torch.float64)
        if total is None:
            return part
        combine = STEPS[PAIRWISE[self._reduction.name]]
        _bound(self._call, combine, {}, total, [total, part])()
        return total


@final
class _Evaluator:
    """Computes blocks of the operand, in one thread."""

    def __init__(self, call: KernelCall, steps: Sequence[ExpressionStep], tile: Tile) -> None:
        self._call, self._steps, self._tile = call, steps, tile
        self._memory: dict[tuple[int, Shape], torch.Tensor] = {}
        self._bound: dict[tuple[int, Shape], BoundCall] = {}

    def operand(self, block: BlockRanges) -> torch.Tensor:
        """Compute a block of the operand; it is valid until the next block is computed."""
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

    def _is_same_for_all(self, step: ExpressionStep) -> bool:
        """Return True if a step's call depends only on the shape of a block."""
        numbers = [-1 - source for source in step.sources if source < 0]
        scalar = all(self._call.inputs[number].ndim == 0 for number in numbers)
        return scalar and STEPS[step.operation].is_elementwise

    def _step(
        self,
        step: ExpressionStep,
        spans: Sequence[Range],
        block: BlockRanges,
        out: torch.Tensor,
        values: Sequence[torch.Tensor],
    ) -> BoundCall:
        """Bind the call that computes a step's part of a block."""
        inputs = [
            values[source] if source >= 0 else self._stored_operand(-1 - source, block)
            for source in step.sources
        ]
        indices = self._tile[len(self._tile) - len(step.shape) :]
        tile = tuple(
            [
                index.select(*span) if n != 1 else IndexSet.range(0, 1)
                for index, span, n in zip(indices, spans, step.shape, strict=True)
            ]
        )
        attributes = dict(step.attributes)
        if "shape" in attributes:
            attributes["shape"] = tile_shape(tile)
        operation = STEPS[step.operation]
        return _bound(self._call, operation, attributes, out, inputs, tile, step.shape)

    def _stored_operand(self, number: int, block: BlockRanges) -> torch.Tensor:
        """Return the part of a stored operand that a block needs."""
        x = self._call.inputs[number]
        if x.ndim == 0:
            return x
        whole = self._call.shapes[number]
        part = x[tuple([slice(*span) for span in _aligned(whole, block)])]
        return part.contiguous() if self._call.context.deterministic else part

    def _scratch(self, number: int, shape: Shape, dtype: DType) -> torch.Tensor:
        """Return the memory of a step, which is reused for the next block."""
        import torch

        from magmath.memory.torch_dtypes import to_torch

        memory = self._memory.get((number, shape))
        if memory is None:
            memory = torch.empty(shape, dtype=to_torch(dtype), device=self._call.out.device)
            self._memory[number, shape] = memory
        return memory


def _bound(
    call: KernelCall,
    operation: Operation,
    attributes: Mapping[str, Any],
    out: torch.Tensor,
    inputs: list[torch.Tensor],
    tile: Tile = (),
    shape: Shape = (),
) -> BoundCall:
    """Bind an operation on the tensors of one block."""
    shapes = [tuple(x.shape) for x in inputs]
    tiles: list[Tile] = [()] * len(inputs)
    inner = KernelCall(out, inputs, attributes, tile, tiles, shape, shapes, call.context)
    return operation.kernel(inner)


def _aligned(shape: Shape, block: BlockRanges) -> list[Range]:
    """Return the ranges of an array that broadcast to a block of the operand."""
    spans = block[len(block) - len(shape) :]
    return [span if n != 1 else (0, 1) for n, span in zip(shape, spans, strict=True)]
