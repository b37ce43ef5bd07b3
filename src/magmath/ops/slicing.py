"""Slices: reads and writes of an array's elements at regular positions.

The bounds are part of the program, and each worker computes the elements of `slice` that its tile
of the operand contains. `set_slice` returns the operand with these elements replaced by others,
which broadcast; it overwrites the operand in place if nothing else needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np

from magmath.codegen.emit import IndexMap, IndexVariables, NativeCall, PartUpdate, Writer, emit_copy
from magmath.core.dtypes import DType
from magmath.core.index_set import IndexSet, Tile
from magmath.core.shapes import can_broadcast_to
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, any_memory_order
from magmath.layout import Split
from magmath.ops.creation import full
from magmath.ops.index_letters import LETTERS, aligned_letters
from magmath.ops.kernel_binding import as_signed
from magmath.ops.leaves import constant
from magmath.ops.shared_fields import is_always_exact, no_flops

if TYPE_CHECKING:
    import torch

Bound = tuple[int, int, int]
Bounds = tuple[Bound, ...]  # start, stop and step of each dimension, as from `slice.indices`


def zeros_like(x: Node) -> Node:
    """Return zeros of a node's shape and type."""
    return full(x.shape, constant(0, x.dtype))


def check_written(operation: str, x: Node, values: Node, shape: Shape) -> None:
    """Raise DTypeError or ShapeError unless `values` can replace a part of x of this shape."""
    if values.dtype is not x.dtype:
        raise DTypeError(
            f"{operation}: cannot put {values.dtype} into an array of {x.dtype}; convert the "
            f"values with mm.astype(x, …)"
        )
    if not can_broadcast_to(values.shape, shape):
        raise ShapeError(
            f"{operation}: values of shape {values.shape} do not broadcast to the part of shape "
            f"{shape} that they are to replace"
            "; reshape or slice the values"
        )


# views of regular positions -------------------------------------------------------------------


@final
class SlicedView:
    """Elements of a tensor, given by one range or tensor of positions for each dimension.

    torch has no negative strides: the view runs forwards, and reads and writes flip its reversed
    dimensions.
    """

    def __init__(self, tensor: torch.Tensor, selectors: Sequence[range | torch.Tensor]) -> None:
        self._flips: list[int] = []
        self._index: tuple[Any, ...] | None = None
        self._tensor = tensor
        if all(isinstance(s, range) for s in selectors):
            for d, selector in enumerate(selectors):
                assert isinstance(selector, range)
                self._narrow(d, selector)
        else:
            self._index = _grid(selectors, tensor.device)

    def _narrow(self, d: int, selector: range) -> None:
        if selector.step < 0:
            self._flips.append(d)
            selector = selector[::-1]
        step = 1 if len(selector) == 1 else selector.step  # torch compares strides of equal memory
        stop = selector.start + 1 if len(selector) == 1 else max(selector.stop, selector.start)
        forward = slice(selector.start, stop, step)
        self._tensor = self._tensor[(slice(None),) * d + (forward,)]

    def get(self) -> torch.Tensor:
        """Return the elements."""
        if self._index is not None:
            return self._tensor[self._index]
        return self._tensor.flip(self._flips) if self._flips else self._tensor

    def set(self, values: torch.Tensor) -> None:
        """Overwrite the elements with values that broadcast to them."""
        if self._index is not None:
            self._tensor[self._index] = values
            return
        if self._flips:
            values = values.expand(self._tensor.shape).flip(self._flips)
        self._tensor.copy_(values)


def _grid(selectors: Sequence[range | torch.Tensor], device: torch.device) -> tuple[Any, ...]:
    """Return index tensors that broadcast against each other, one for each dimension."""
    import torch

    def positions(selector: range | torch.Tensor) -> torch.Tensor:
        if isinstance(selector, range):  # dtype: an empty tensor would be float32
            return torch.tensor(list(selector), dtype=torch.int64, device=device)
        return selector.to(device)

    ndim = len(selectors)
    return tuple(
        positions(selector).reshape([-1 if e == d else 1 for e in range(ndim)])
        for d, selector in enumerate(selectors)
    )


# slices with bounds in the program ------------------------------------------------------------


def _extent(bound: Bound) -> int:
    return len(range(*bound))


def _slice_infer(x: Node, *, bounds: Bounds) -> tuple[Shape, DType]:
    return tuple(map(_extent, bounds)), x.dtype


def _sliced_letters(x: Shape, bounds: Bounds) -> str:
    """Return the letters of a slice: upper case (a derived split) for dimensions that it
    shortens."""
    return "".join(
        LETTERS[d] if bound == (0, n, 1) else LETTERS[d].upper()
        for d, (n, bound) in enumerate(zip(x, bounds, strict=True))
    )


def _slice_axes(node: Node) -> str:
    x = node.inputs[0]
    return f"{LETTERS[: x.ndim]}->{_sliced_letters(x.shape, node.attributes['bounds'])}"


def _slice_split(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    bound = node.attributes["bounds"][LETTERS.index(letter)]
    return split.map_positions(lambda cut: _before(bound, cut))


def _before(bound: Bound, cut: int) -> int:
    """Return how many of a slice's elements are before a cut, or after it for a negative step."""
    start, _, step = bound
    elements = -((start - cut) // step) if step > 0 else (start - cut) // -step + 1
    return min(max(elements, 0), _extent(bound))


def _part_of(x: torch.Tensor, stored_tile: Tile, part: Tile, bounds: Bounds) -> SlicedView:
    """Return the elements of `x`, which stores `stored_tile`, that form tile `part` of the
    slice."""
    return SlicedView(x, [selector(*dim) for dim in zip(stored_tile, part, bounds, strict=True)])


def selector(stored_indices: IndexSet, part: IndexSet, bound: Bound) -> range | torch.Tensor:
    """Return the local positions of a part of a slice in `stored_indices`."""
    import torch

    start, _, step = bound
    if stored_indices.is_range and part.is_range:
        first = start + step * part.start - stored_indices.start
        return range(first, first + step * part.size, step)
    return torch.from_numpy(stored_indices.find(start + step * part.indices()))


def _slice_kernel(call: KernelCall) -> BoundCall:
    x, out = as_signed(call.inputs[0]), as_signed(call.out)
    part = _part_of(x, call.tiles[0], call.tile, call.attributes["bounds"])
    return lambda: out.copy_(part.get())


def _slice_indices(w: Writer, call: NativeCall) -> IndexVariables:
    return _local_indices(call, call.tiles[0], call.tile)


def _local_indices(call: NativeCall, stored_tile: Tile, part: Tile) -> IndexVariables:
    """Return the local positions in `stored_tile` of the elements of tile `part` of the slice."""
    bounds = call.attributes["bounds"]
    firsts = [
        call.number(start + step * want.start - have.start)
        for have, want, (start, _, step) in zip(stored_tile, part, bounds, strict=True)
    ]
    lines = [
        f"{first} + {{}}" if step == 1 else f"{first} + {step} * {{}}"
        for first, (_, _, step) in zip(firsts, bounds, strict=True)
    ]
    return lambda indices: [line.format(i) for line, i in zip(lines, indices, strict=True)]


def _slice_view(call: NativeCall, x: torch.Tensor) -> torch.Tensor | None:
    """Return the view of the local operand that is the result; None if it runs backwards."""
    return _forward(x, call.tiles[0], call.tile, call.attributes["bounds"])


def _overwritten_view(call: NativeCall, out: torch.Tensor) -> torch.Tensor | None:
    """Return the view of the local result that is overwritten; None if it runs backwards."""
    bounds = call.attributes["bounds"]
    part = _part_in(call.tile, bounds)
    return _forward(out, call.tile, part, bounds)


def _forward(x: torch.Tensor, stored_tile: Tile, part: Tile, bounds: Bounds) -> torch.Tensor | None:
    for d, (have, want, bound) in enumerate(zip(stored_tile, part, bounds, strict=True)):
        if bound[2] < 0 or not want.is_range:
            return None
        chosen = selector(have, want, bound)
        assert isinstance(chosen, range)
        x = x[(slice(None),) * d + (slice(chosen.start, max(chosen.stop, chosen.start), bound[2]),)]
    return x


def _grid_of(bounds: Bounds) -> Any:
    return np.ix_(*[np.arange(*bound) for bound in bounds])


def numpy_slice_of(bound: Bound) -> slice:
    """Return the slice of NumPy's arrays for bounds, whose end, or start if there are no elements,
    may be before the first element: a negative number would count from the end."""
    start, stop, step = bound
    if not range(*bound):
        return slice(0, 0, step)
    return slice(start, None if stop < 0 else stop, step)


def _numpy_slice(node: Node) -> Callable[..., object]:
    index = tuple(map(numpy_slice_of, node.attributes["bounds"]))
    return lambda x, out: np.copyto(out, x[index])


def _slice_vjp(node: Node, g: Node) -> Gradients:
    return (apply(SET_SLICE, zeros_like(node.inputs[0]), g, **node.attributes),)


SLICE = Operation(
    name="slice",
    infer=_slice_infer,
    axes=_slice_axes,
    reduction=None,
    vjp=_slice_vjp,
    kernel=_slice_kernel,
    native=IndexMap(_slice_indices, _slice_view),
    reference=lambda x, *, bounds: x[_grid_of(bounds)],
    numpy_function=_numpy_slice,
    flops=no_flops,
    has_same_bits=is_always_exact,
    derived_split=_slice_split,
    reads_subset=True,
    is_view=True,
    memory_orders=any_memory_order,
)


def slice_along(x: Node, axis: int, start: int, stop: int) -> Node:
    """Return the elements start … stop - 1 of one axis."""
    bounds = tuple((start, stop, 1) if d == axis else (0, n, 1) for d, n in enumerate(x.shape))
    return x if bounds[axis] == (0, x.shape[axis], 1) else apply(SLICE, x, bounds=bounds)


def reversed_along(x: Node, axes: Collection[int]) -> Node:
    """Return x with the elements along some axes in reverse order."""
    bounds = tuple((n - 1, -1, -1) if d in axes else (0, n, 1) for d, n in enumerate(x.shape))
    return apply(SLICE, x, bounds=bounds)


def _set_slice_infer(x: Node, values: Node, *, bounds: Bounds) -> tuple[Shape, DType]:
    check_written("set_slice", x, values, tuple(map(_extent, bounds)))
    return x.shape, x.dtype


def _set_slice_axes(node: Node) -> str:
    (x, values), bounds = node.inputs, node.attributes["bounds"]
    letters, part = LETTERS[: x.ndim], tuple(map(_extent, bounds))
    replaced = aligned_letters(_sliced_letters(x.shape, bounds), part, values.shape)
    return f"{letters},{replaced}->{letters}"


def _set_slice_kernel(call: KernelCall) -> BoundCall:
    x, values, out = *map(as_signed, call.inputs), as_signed(call.out)
    bounds = call.attributes["bounds"]
    part = _part_in(call.tile, bounds)
    view = _part_of(out, call.tile, part, bounds)

    def run() -> None:
        keep(out, x)
        view.set(values)

    return run


def _emit_set_slice(w: Writer, call: NativeCall) -> bool:
    x, values = call.inputs
    bounds = call.attributes["bounds"]
    part = _part_in(call.tile, bounds)
    if not all(elements.is_range for elements in part):
        return False
    emit_copy(w, call.out, x)
    local = _local_indices(call, call.tile, part)
    with w.loops(tuple(elements.size for elements in part)) as indices:
        w.line(f"{call.out.at(local(indices))} = {values.at(indices)}")
    return True


def keep(out: torch.Tensor, x: torch.Tensor) -> None:
    """Copy the operand x to `out`, unless they share memory (an update in place)."""
    if out.data_ptr() != x.data_ptr():
        out.copy_(x)


def _part_in(tile: Tile, bounds: Bounds) -> Tile:
    """Return the elements of a slice that are in a tile, as positions along the slice."""
    return tuple([elements_in(indices, bound) for indices, bound in zip(tile, bounds, strict=True)])


def elements_in(stored_indices: IndexSet, bound: Bound) -> IndexSet:
    """Return the elements of a slice that are in `stored_indices`, as positions along the slice."""
    if stored_indices.is_range:
        return IndexSet.range(
            *sorted((_before(bound, stored_indices.start), _before(bound, stored_indices.stop)))
        )
    (elements,) = np.isin(np.arange(*bound), stored_indices.indices()).nonzero()
    return IndexSet.from_segments(elements, elements + 1)


def _set_slice_reference(x: Any, values: Any, *, bounds: Bounds) -> Any:
    out = np.array(x)
    out[_grid_of(bounds)] = values
    return out


def _numpy_set_slice(node: Node) -> Callable[..., object]:
    index = tuple(map(numpy_slice_of, node.attributes["bounds"]))

    def write(x: Any, values: Any, out: Any) -> None:
        np.copyto(out, x)
        out[index] = values

    return write


def _set_slice_vjp(node: Node, g: Node) -> Gradients:
    x_cotangent = apply(SET_SLICE, g, constant(0, g.dtype), **node.attributes)
    return x_cotangent, apply(SLICE, g, **node.attributes)


SET_SLICE = Operation(
    name="set_slice",
    infer=_set_slice_infer,
    axes=_set_slice_axes,
    reduction=None,
    vjp=_set_slice_vjp,
    kernel=_set_slice_kernel,
    native=PartUpdate(_overwritten_view, _emit_set_slice),
    reference=_set_slice_reference,
    numpy_function=_numpy_set_slice,
    flops=no_flops,
    has_same_bits=is_always_exact,
    derived_split=_slice_split,
    overwrites_first=True,
)


def padded(x: Node, shape: Shape, before: Sequence[int]) -> Node:
    """Return x in a larger array of zeros, at offset `before` along each axis."""
    bounds = tuple((b, b + n, 1) for b, n in zip(before, x.shape, strict=True))
    zeros = full(shape, constant(0, x.dtype))
    return x if x.shape == shape else apply(SET_SLICE, zeros, x, bounds=bounds)


OPERATIONS = {record.name: record for record in (SLICE, SET_SLICE)}
