"""Eager execution: computes the nodes of small arrays one kernel after the other, without a
program.

Planning pays if arrays are large or distributed. For a few kilobytes on the single worker of this
process it costs more than it saves, so this module calls the operations' own kernels in the order
of the nodes, and reuses memory as soon as its last reader has run. Properties that nodes of one
signature share are computed once. `compute` does so on the heap of the worker; `EagerKernels`
computes single nodes on NumPy arrays, for eager arrays and eager programs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, final

import numpy as np
import torch
from msgspec import Struct

from magmath.comm.local_group import LocalGroup
from magmath.core.dtypes import DTYPES, DType
from magmath.core.index_set import Tile
from magmath.executor.context import Context
from magmath.executor.numpy_fast_path import is_faster_by_numpy, silent_context
from magmath.executor.user_line import attach_user_line
from magmath.graph import KernelCall, Node, Shape
from magmath.layout import Layout, Mesh
from magmath.memory.chunk_sources import PrivateSource
from magmath.memory.heap import Heap, View
from magmath.memory.local_array import LocalArray, tile_spec
from magmath.memory.torch_dtypes import NUMPY, to_torch
from magmath.ops.leaves import CONSTANT, SCALAR

_NUMBERS = frozenset({SCALAR, CONSTANT})
_Made = tuple[LocalArray, list[LocalArray]]  # an array, and the free list to which it returns


def compute(
    context: Context,
    order: Sequence[Node],
    requested: Sequence[Node],
    views: dict[Node, View],
) -> list[LocalArray]:
    """Return the values of `requested`, in new memory, computed by the nodes in `order`, each after
    its inputs.

    `views` contains the arrays of the leaves and of the known nodes; the function adds all others.
    An error carries the user's line that built the failing node, and all memory is freed then.
    """
    made: dict[Node, _Made] = {}
    spare: defaultdict[_WholeTile, list[LocalArray]] = defaultdict(list)
    try:
        silent_context().run(_compute, context, order, requested, views, made, spare)
    except BaseException:
        _free([array for array, _ in made.values()], context)
        raise
    finally:
        for waiting in spare.values():
            _free(waiting, context)
    return [made[node][0] for node in requested]


@final
class EagerKernels:
    """The computation of single nodes in this process, on NumPy arrays."""

    def __init__(self) -> None:
        cpu = torch.device("cpu")
        self._context = Context(LocalGroup(1).communicator(0), Heap(PrivateSource(cpu)), cpu)

    def value_of(
        self, node: Node, operands: Sequence[np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any]:
        """Return the value of a node of a type that NumPy has, in new memory.

        `operands` are the values of its inputs. An error carries the line that built the node.
        """
        signature = node.signature
        step = (signature.eager_step if signature is not None else None) or _prepared(node)
        out = np.empty(node.shape, step.type)
        run: Any = silent_context().run
        try:
            if step.function is not None:
                run(step.function, *operands, out)
            else:
                run(self._call, node, step, operands, out)
        except Exception as error:
            attach_user_line(error, node)
            raise
        return out

    def has_function(self, node: Node) -> bool:
        """Return True if NumPy's function computes a node."""
        signature = node.signature
        step = (signature.eager_step if signature is not None else None) or _prepared(node)
        return step.function is not None

    def function_of(self, node: Node) -> tuple[Callable[..., Any], bool]:
        """Return the function that computes a node's value from those of its inputs, and True if it
        returns a new array; otherwise its last argument is the memory for the result."""
        step = _prepared(node)
        if step.function is not None:
            return step.function, step.allocates
        return (lambda *values: self._call(node, step, values[:-1], values[-1])), False

    def _call(
        self,
        node: Node,
        step: EagerStep,
        operands: Sequence[np.ndarray[Any, Any]],
        out: np.ndarray[Any, Any],
    ) -> None:
        if node.operation.memory_orders is None:  # the kernel reads rows
            operands = [np.asarray(value, order="C") for value in operands]
        views = {x: View(value) for x, value in zip(node.inputs, operands, strict=True)}
        views[node] = View(out)
        _call(node, step.whole, views, self._context)


def _free(arrays: Iterable[LocalArray], context: Context) -> None:
    for stored in arrays:
        stored.free(context.heap)


def _compute(
    context: Context,
    order: Sequence[Node],
    requested: Sequence[Node],
    views: dict[Node, View],
    made: dict[Node, _Made],
    spare: defaultdict[_WholeTile, list[LocalArray]],
) -> None:
    """Compute all nodes. `made` holds arrays with pending readers, `spare` memory for reuse."""
    todo: list[Node] = []
    last: dict[Node, Node] = {}  # the last reader
    for node in order:
        if node not in views:
            todo.append(node)
            for source in node.inputs:
                last[source] = node
    for node in requested:
        last.pop(node, None)
    on_cpu = context.device.type == "cpu"
    for node in todo:
        inputs = node.inputs
        try:
            if not inputs and node.operation in _NUMBERS:
                views[node] = _number(node)
                continue
            signature = node.signature
            step = (signature.eager_step if signature is not None else None) or _prepared(node)
            whole, function = step.whole, step.function
            waiting = spare[whole]
            out = waiting.pop() if waiting else whole.piece.allocate(context.heap)
            if context.heap.fills:
                context.heap.fill(out.block)
            made[node] = out, waiting
            views[node] = view = out.view
            if function is None or not on_cpu:
                _call(node, whole, views, context)
            elif len(inputs) == 2:
                x, y = inputs
                function(views[x].array, views[y].array, view.array)
            else:
                function(*[views[x].array for x in inputs], view.array)
        except Exception as error:
            attach_user_line(error, node)
            raise
        for source in inputs:
            if last.get(source) is node and source in made:
                done, waiting = made.pop(source)
                waiting.append(done)


def _call(node: Node, whole: _WholeTile, views: Mapping[Node, View], context: Context) -> None:
    """Compute a node's value in its tensor, by the operation's own kernel."""
    if not whole.layout.size:
        return
    shapes = [source.shape for source in node.inputs]
    local = KernelCall(
        views[node].tensor,
        context.on_device([views[source].tensor for source in node.inputs]),
        node.attributes,
        whole.tile,
        [_whole_tile(source.shape, source.dtype).tile for source in node.inputs],
        node.shape,
        shapes,
        context,
    )
    node.operation.kernel(local)()


@final
class _WholeTile:
    """The layout of arrays of a shape and a type on a single worker, whose tile is the whole
    array."""

    __slots__ = ("layout", "piece")

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.layout = Layout.whole(shape, Mesh.line(1))
        self.piece = tile_spec(self.layout, dtype, 0)

    @property
    def tile(self) -> Tile:
        """The tile of the single worker."""
        return self.layout.tiles(0)[0]


_whole_tile = lru_cache(maxsize=4096)(_WholeTile)


@final
class EagerStep(Struct, eq=False):
    """The computation of nodes of one signature.

    whole      the placement of the result
    function   NumPy's function of operands and result, if it is faster than the kernel
    allocates  the function is called without memory for the result, and returns a new array
    type       NumPy's type of the result, if there is one
    """

    whole: _WholeTile
    function: Callable[..., Any] | None
    allocates: bool
    type: np.dtype[Any] | None


def _prepared(node: Node) -> EagerStep:
    """Return the step of a node; store it in the node's signature."""
    whole, operation = _whole_tile(node.shape, node.dtype), node.operation
    ufunc, copy = operation.numpy_ufunc, operation.numpy_function
    arrays = node, *node.inputs
    dtypes = [x.dtype for x in arrays]
    function: Callable[..., object] | None = None
    if ufunc is not None and is_faster_by_numpy(ufunc, whole.layout.size, dtypes):
        function = ufunc.function
    elif copy is not None and all(x.size and x.dtype in NUMPY for x in arrays):
        function = copy(node)
    kind = NUMPY.get(node.dtype)
    step = EagerStep(whole, function, _allocates(function, node, kind), kind)
    if node.signature is not None:
        node.signature.eager_step = step
    return step


def _allocates(function: Callable[..., object] | None, node: Node, kind: Any) -> bool:
    """Return True if a function without memory for its result returns a new array of this type.

    Of operands without dimensions, NumPy's functions return a number.
    """
    if not isinstance(function, np.ufunc) or not node.shape or function.nin != len(node.inputs):
        return False
    types = [NUMPY.get(x.dtype) for x in node.inputs]
    return bool(function.resolve_dtypes((*types, None))[-1] == kind)


def number_array(leaf: Node) -> np.ndarray[Any, Any] | None:
    """Return the number of a leaf as a 0-d array, not to be written; None if NumPy has no such
    type."""
    return _number(leaf).array


def _number(node: Node) -> View:
    """Return a number as a read-only 0-d array."""
    value = node.value if node.operation is SCALAR else node.attributes["value"]
    if value and type(value) is not complex:  # two zeros are equal but may differ in sign
        return _kept_scalar(value, node.dtype.name)
    return _new_scalar(value, node.dtype.name)


def _new_scalar(value: bool | int | float | complex, name: str) -> View:
    dtype = DTYPES[name]
    if dtype in NUMPY:
        return View(np.array(value, NUMPY[dtype]))
    return View(None, torch.zeros((), dtype=to_torch(dtype)).fill_(value))


_kept_scalar = lru_cache(maxsize=1024, typed=True)(_new_scalar)
