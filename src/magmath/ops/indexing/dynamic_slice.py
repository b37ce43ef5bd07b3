"""Dynamic slices, as in XLA: parts of an array whose start positions are known only when the
program runs.

The positions are operands, so a loop over positions runs one program. If the operand is split, each
worker contributes the elements of the slice that it stores. `dynamic_update_slice` returns the
operand with these elements replaced by others, which broadcast; it overwrites the operand in place
if nothing else needs it.

`axes` are the dimensions that a slice shortens, `extents` and `steps` its extents and steps along
them; an extent of None selects a single element, and the result lacks its dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from magmath.codegen.emit import (
    IndexMap,
    IndexVariables,
    NativeCall,
    NativeOperand,
    Writer,
    emit_copy,
    emit_failure,
)
from magmath.core.dtypes import DType
from magmath.core.index_set import IndexSet, Tile
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, OperandCheck
from magmath.ops.index_letters import LETTERS, aligned_letters
from magmath.ops.indexing.local_index import (
    checked_indices,
    neutral,
    out_of_range,
    record_first_failure,
)
from magmath.ops.kernel_binding import as_signed
from magmath.ops.leaves import constant
from magmath.ops.shared_fields import is_always_exact, no_flops
from magmath.ops.slicing import (
    Bound,
    SlicedView,
    check_written,
    elements_in,
    keep,
    numpy_slice_of,
    selector,
    zeros_like,
)

if TYPE_CHECKING:
    import torch

Extents = tuple[int | None, ...]


def slice_shape(x: Shape, axes: tuple[int, ...], extents: Extents) -> Shape:
    """Return the shape of a slice of an array."""
    shape: list[int | None] = list(x)
    for axis, extent in zip(axes, extents, strict=True):
        shape[axis] = extent
    return tuple(extent for extent in shape if extent is not None)


def _slice_infer(
    x: Node, *starts: Node, axes: tuple[int, ...], extents: Extents, steps: tuple[int, ...]
) -> tuple[Shape, DType]:
    for start in starts:
        if start.shape != () or not start.dtype.is_integer:
            raise DTypeError(
                f"dynamic_slice: a first position is a 0-d integer, got {start.ndim}-D "
                f"{start.dtype}; convert it with mm.astype(x, mm.int64), or take one element"
            )
    return slice_shape(x.shape, axes, extents), x.dtype


def _slice_letters(node: Node) -> str:
    """Return the result's letters: new ones along the slice, the operand's elsewhere."""
    ndim, attributes = node.inputs[0].ndim, node.attributes
    letters = list(LETTERS[:ndim])
    for i, (axis, extent) in enumerate(zip(attributes["axes"], attributes["extents"], strict=True)):
        letters[axis] = "" if extent is None else LETTERS[ndim + i]
    return "".join(letters)


def _slice_axes(node: Node) -> str:
    starts = "," * len(node.attributes["axes"])
    return f"{LETTERS[: node.inputs[0].ndim]}{starts}->{_slice_letters(node)}"


def _slice_bounds(
    starts: Sequence[torch.Tensor | int],
    shape: Shape,
    axes: tuple[int, ...],
    extents: Extents,
    steps: tuple[int, ...],
) -> list[Bound]:
    """Return the bounds of the slice along each of `axes`.

    The position of a single element counts from the end if it is negative. Raises IndexError if the
    slice exceeds the array.
    """
    bounds = []
    for start, axis, extent, step in zip(starts, axes, extents, steps, strict=True):
        first, whole = int(start), shape[axis]
        if extent is None:
            if not -whole <= first < whole:
                raise out_of_range(first, axis, whole)
            first %= whole
        count = 1 if extent is None else extent
        last = first + step * (count - 1)
        if count and not (0 <= first < whole and 0 <= last < whole):
            raise out_of_range(last if 0 <= first < whole else first, axis, whole)
        bounds.append((first, first + step * count, step))
    return bounds


def _check_start(node: Node, number: int) -> OperandCheck:
    """Return the function that raises IndexError for a first position with which a slice exceeds
    the array."""
    axis, extent, step = (node.attributes[name][number] for name in ("axes", "extents", "steps"))
    fields = node.inputs[0].shape, (axis,), (extent,), (step,)
    return lambda start: _slice_bounds((start,), *fields)


def _with_single_elements_in(
    tensor: torch.Tensor, axes: tuple[int, ...], extents: Extents
) -> torch.Tensor:
    """Return a view of a tensor of the slice's shape, with dimensions for single elements."""
    for axis, extent in zip(axes, extents, strict=True):
        if extent is None:
            tensor = tensor.unsqueeze(axis)
    return tensor


def _slice_tile(call: KernelCall) -> Tile:
    """Return the part of the slice that the local result stores, by dimensions of the operand."""
    dropped = {
        a
        for a, e in zip(call.attributes["axes"], call.attributes["extents"], strict=True)
        if e is None
    }
    result_indices = iter(call.tile)
    return tuple(
        IndexSet.range(0, 1) if d in dropped else next(result_indices)
        for d in range(len(call.shapes[0]))
    )


def _is_whole(call: KernelCall, *tiles: Tile) -> bool:
    """Return True if this worker stores the array and the slice wholly along the slice's axes,
    and the slice is no reversed or empty one."""
    axes, extents, steps = (call.attributes[name] for name in ("axes", "extents", "steps"))
    shape, (whole, *part) = call.shapes[0], tiles
    counts = [1 if extent is None else extent for extent in extents]
    return (
        all(step > 0 for step in steps)
        and all(counts)
        and all(whole[axis].size == shape[axis] for axis in axes)
        and all(x[axis].size == n for x in part for axis, n in zip(axes, counts, strict=True))
    )


def _narrowed(x: torch.Tensor, bounds: Sequence[Bound], axes: tuple[int, ...]) -> torch.Tensor:
    """Return the view of a tensor of the elements in a slice."""
    for axis, (first, stop, step) in zip(axes, bounds, strict=True):
        if step == 1:
            x = x.narrow(axis, first, stop - first)
        else:
            x = x[(slice(None),) * axis + (slice(first, stop, step),)]
    return x


def _slice_kernel(call: KernelCall) -> BoundCall:
    (x, *starts), (stored_tile, *_) = call.inputs, call.tiles
    axes, extents, shape = call.attributes["axes"], call.attributes["extents"], call.shapes[0]
    on_device = len(axes) == 1 and starts[0].device.type != "cpu"
    if on_device and stored_tile[axes[0]].size == shape[axes[0]] > 0:
        record = call.context.failure_record(
            partial(out_of_range, axis=axes[0], extent=shape[axes[0]])
        )
        if record is not None:
            return _device_slice(call, record)
    x, out = as_signed(x), _with_single_elements_in(as_signed(call.out), axes, extents)
    part = _slice_tile(call)
    if _is_whole(call, stored_tile, part):
        attributes = call.attributes

        def read() -> None:
            out.copy_(_narrowed(x, _slice_bounds(starts, shape, **attributes), axes))

        return read
    full = [range(extent) for extent in x.shape]
    empty = neutral(out)

    def run() -> None:
        bounds = _slice_bounds(starts, shape, **call.attributes)
        sources: list[range | torch.Tensor] = list(full)
        targets: list[range | torch.Tensor] = [range(extent) for extent in out.shape]
        for axis, bound in zip(axes, bounds, strict=True):
            here = part[axis]
            if stored_tile[axis].size < shape[axis]:
                here = elements_in(stored_tile[axis], bound).intersect(here)
                targets[axis] = selector(part[axis], here, (0, bound[2], 1))
            sources[axis] = selector(stored_tile[axis], here, bound)
        if any(
            len(positions) < extent for positions, extent in zip(targets, out.shape, strict=True)
        ):
            out.fill_(empty)
        SlicedView(out, targets).set(SlicedView(x, sources).get())

    return run


def _device_slice(call: KernelCall, record: torch.Tensor) -> BoundCall:
    """Bind a slice whose position stays on the device, so that the host does not wait for it.

    A position that is out of range is reported in `record`, and replaced by one that is not.
    """
    import torch

    x, start = call.inputs
    (axis,), (extent,), (step,) = (call.attributes[name] for name in ("axes", "extents", "steps"))
    whole, least = call.shapes[0][axis], 0 if extent is not None else -call.shapes[0][axis]
    counted = [0] if extent is None else call.tile[axis].indices()
    offset = torch.as_tensor(counted, device=x.device) * step
    index = torch.empty_like(offset)
    ends = index[:: max(1, len(index) - 1)]
    out = _with_single_elements_in(as_signed(call.out), (axis,), (extent,))

    def run() -> None:
        torch.add(offset, start, out=index)
        record_first_failure(record, ends, (ends < least) | (ends >= whole))
        if least:
            index.remainder_(whole)  # negative positions count from the end
        index.clamp_(0, whole - 1)
        torch.index_select(as_signed(x), axis, index, out=out)

    return run


def _slice_grid(
    shape: Shape,
    starts: Sequence[Any],
    axes: tuple[int, ...],
    extents: Extents,
    steps: tuple[int, ...],
) -> Any:
    grid = [np.arange(n) for n in shape]
    for start, axis, extent, step in zip(starts, axes, extents, steps, strict=True):
        grid[axis] = int(start) + step * np.arange(1 if extent is None else extent)
    return np.ix_(*grid)


def _slice_reference(x: Any, *starts: Any, **attributes: Any) -> Any:
    shape = slice_shape(x.shape, attributes["axes"], attributes["extents"])
    return x[_slice_grid(x.shape, starts, **attributes)].reshape(shape)


def _numpy_index(node: Node) -> Callable[[Sequence[Any]], Any]:
    """Return the function from the positions of a slice to NumPy's index of its elements."""
    shape, attributes = node.inputs[0].shape, node.attributes
    axes, extents = attributes["axes"], attributes["extents"]

    def index(starts: Sequence[Any]) -> Any:
        selectors: list[Any] = [slice(None)] * len(shape)
        for axis, extent, bound in zip(
            axes, extents, _slice_bounds(starts, shape, **attributes), strict=True
        ):
            selectors[axis] = bound[0] if extent is None else numpy_slice_of(bound)
        return tuple(selectors)

    return index


def _numpy_slice(node: Node) -> Callable[..., object]:
    index = _numpy_index(node)
    return lambda x, *starts_and_out: np.copyto(starts_and_out[-1], x[index(starts_and_out[:-1])])


def _numpy_update(node: Node) -> Callable[..., object]:
    index = _numpy_index(node)

    def write(x: Any, values: Any, *starts_and_out: Any) -> None:
        selection = index(starts_and_out[:-1])  # raises before anything is written
        np.copyto(starts_and_out[-1], x)
        starts_and_out[-1][selection] = values

    return write


def _slice_vjp(node: Node, g: Node) -> Gradients:
    x, *starts = node.inputs
    return apply(DYNAMIC_UPDATE_SLICE, zeros_like(x), g, *starts, **node.attributes), *(
        None for _ in starts
    )


def _slice_indices(w: Writer, call: NativeCall) -> IndexVariables | None:
    """Return the positions of the slice's elements in the operand.

    Returns None unless this worker stores the whole operand, and if there are no elements.
    """
    x, *starts = call.inputs
    if x.shape != call.shapes[0] or 0 in (*x.shape, *call.out.shape):
        return None
    return _local_indices_from(w, call, starts, [call.number(part.start) for part in call.tile])


def _emit_update(w: Writer, call: NativeCall) -> bool:
    x, values, *starts = call.inputs
    shape = slice_shape(x.shape, call.attributes["axes"], call.attributes["extents"])
    if x.shape != call.shapes[0] or 0 in (*x.shape, *shape):
        return False
    emit_copy(w, call.out, x)
    local = _local_indices_from(w, call, starts, ["0"] * len(shape))
    with w.loops(shape) as indices:
        w.line(f"{call.out.at(local(indices))} = {values.at(indices)}")
    return True


def _local_indices_from(
    w: Writer, call: NativeCall, starts: Sequence[NativeOperand], offsets: Sequence[str]
) -> IndexVariables:
    """Return a map from the slice's indices, plus `offsets`, to positions in the whole array.

    Also writes the code that reads and checks the start positions.
    """
    axes, extents, steps = (call.attributes[name] for name in ("axes", "extents", "steps"))
    firsts = [
        _emit_start(w, call, start, axis, extent, step)
        for start, axis, extent, step in zip(starts, axes, extents, steps, strict=True)
    ]
    dimensions = range(len(call.shapes[0]))
    kept_dims = [d for d in dimensions if d not in axes or extents[axes.index(d)] is not None]
    added = dict(zip(kept_dims, offsets, strict=True))

    def local(indices: Sequence[str]) -> Sequence[str]:
        index, positions = dict(zip(kept_dims, indices, strict=True)), []
        for axis in dimensions:
            if axis not in axes:
                positions.append(index[axis])
                continue
            first, step = firsts[axes.index(axis)], steps[axes.index(axis)]
            moved = (
                f"{first} + {step} * ({index[axis]} + {added[axis]})" if axis in index else first
            )
            positions.append(moved)
        return positions

    return local


def _emit_start(
    w: Writer, call: NativeCall, start: NativeOperand, axis: int, extent: int | None, step: int
) -> str:
    """Write the code that reads and checks a start position; return the name of its variable.

    The position of a single element counts from the end if it is negative. After a failure, the
    code continues at a valid position.
    """
    given, first = w.name("p"), w.name("p")
    whole, span = call.shapes[0][axis], 0 if extent is None else step * (extent - 1)
    w.line(f"{given} = np.int64({start.at([])})")
    from_end = f"{given} + {whole} if {given} < 0 else {given}"
    w.line(f"{first} = {given if extent is not None else from_end}")
    begins, ends = (f"({p} < 0 or {p} >= {whole})" for p in (first, f"({first} + {span})"))
    position = f"{given} if {begins} else {first} + {span}"
    error = partial(out_of_range, axis=axis, extent=whole)
    emit_failure(w, call, f"{begins} or {ends}", position, error)
    w.line(f"    {first} = {max(0, -span)}")
    return first


DYNAMIC_SLICE = Operation(
    name="dynamic_slice",
    infer=_slice_infer,
    axes=_slice_axes,
    reduction="sum",
    vjp=_slice_vjp,
    kernel=_slice_kernel,
    native=IndexMap(_slice_indices),
    reference=_slice_reference,
    numpy_function=_numpy_slice,
    flops=no_flops,
    checked=checked_indices(1, _check_start),
    has_same_bits=is_always_exact,
    reads_subset=True,
)


def _update_infer(x: Node, values: Node, *starts: Node, **attributes: Any) -> tuple[Shape, DType]:
    shape, _ = _slice_infer(x, *starts, **attributes)
    check_written("dynamic_update_slice", x, values, shape)
    return x.shape, x.dtype


def _update_axes(node: Node) -> str:
    x, values, *starts = node.inputs
    axes, extents = node.attributes["axes"], node.attributes["extents"]
    part = "".join(
        "." if d in axes else LETTERS[d]
        for d in range(x.ndim)
        if d not in axes or extents[axes.index(d)] is not None
    )
    shape = slice_shape(x.shape, axes, extents)
    letters = LETTERS[: x.ndim]
    return f"{letters},{aligned_letters(part, shape, values.shape)}{',' * len(starts)}->{letters}"


def _update_kernel(call: KernelCall) -> BoundCall:
    (x, values, *starts), out = call.inputs, as_signed(call.out)
    axes, extents = call.attributes["axes"], call.attributes["extents"]
    x, full = as_signed(x), [range(extent) for extent in out.shape]
    stretched = as_signed(values).expand(slice_shape(tuple(out.shape), axes, extents))
    source = _with_single_elements_in(stretched, axes, extents)
    if _is_whole(call, call.tile):
        attributes, shape = call.attributes, call.shape

        def write() -> None:
            bounds = _slice_bounds(starts, shape, **attributes)
            keep(out, x)
            _narrowed(out, bounds, axes).copy_(source)

        return write

    def run() -> None:
        bounds = _slice_bounds(starts, call.shape, **call.attributes)
        keep(out, x)
        targets: list[range | torch.Tensor] = list(full)
        sources: list[range | torch.Tensor] = [range(extent) for extent in source.shape]
        for axis, bound in zip(axes, bounds, strict=True):
            here = elements_in(call.tile[axis], bound)
            targets[axis] = selector(call.tile[axis], here, bound)
            sources[axis] = selector(IndexSet.range(0, source.shape[axis]), here, (0, 0, 1))
        SlicedView(out, targets).set(SlicedView(source, sources).get())

    return run


def _update_reference(x: Any, values: Any, *starts: Any, **attributes: Any) -> Any:
    out = np.array(x)
    grid = _slice_grid(x.shape, starts, **attributes)
    shape = slice_shape(x.shape, attributes["axes"], attributes["extents"])
    out[grid] = np.broadcast_to(values, shape).reshape(
        np.broadcast_shapes(*(g.shape for g in grid))
    )
    return out


def _update_vjp(node: Node, g: Node) -> Gradients:
    _, _, *starts = node.inputs
    x_cotangent = apply(DYNAMIC_UPDATE_SLICE, g, constant(0, g.dtype), *starts, **node.attributes)
    values_cotangent = apply(DYNAMIC_SLICE, g, *starts, **node.attributes)
    return x_cotangent, values_cotangent, *(None for _ in starts)


DYNAMIC_UPDATE_SLICE = Operation(
    name="dynamic_update_slice",
    infer=_update_infer,
    axes=_update_axes,
    reduction=None,
    vjp=_update_vjp,
    kernel=_update_kernel,
    native=_emit_update,
    reference=_update_reference,
    numpy_function=_numpy_update,
    flops=no_flops,
    checked=checked_indices(2, _check_start),
    has_same_bits=is_always_exact,
    overwrites_first=True,
)


def dynamic_slice(x: Node, axis: int, start: Node, extent: int) -> Node:
    """Return `extent` elements of one axis, from a position known only when the program runs."""
    return apply(DYNAMIC_SLICE, x, start, axes=(axis,), extents=(extent,), steps=(1,))


OPERATIONS = {record.name: record for record in (DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE)}
