"""Prepared kernels: the computation of small nodes on whole arrays of this process, one by one.

Planning pays if arrays are large or distributed. For a few kilobytes it costs more than it saves,
so the operations' own kernels, or NumPy's functions, are called node by node. What nodes of one
signature share is prepared once, and stored in the signature. The interpreter
(`executor/interpret.py`) calls them on memory of the heap, eager arrays and eager programs on NumPy
arrays (`executor/eager_kernels.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, final

import numpy as np
import torch
from msgspec import Struct

from magmath.core.dtypes import DTYPES, DType
from magmath.core.index_set import Tile
from magmath.executor.context import Context
from magmath.executor.numpy_fast_path import is_faster_by_numpy
from magmath.graph import KernelCall, Node, Shape
from magmath.kernels.free_processors import run_on_free_processors
from magmath.layout import Layout, Mesh
from magmath.memory.heap import View
from magmath.memory.local_array import tile_spec
from magmath.memory.torch_dtypes import NUMPY, to_torch
from magmath.ops.leaves import SCALAR

MANY_FLOPS = 1 << 17
"""Arithmetic operations of a product or a factorization from which BLAS may use several threads."""


@final
class WholeTile:
    """The layout of arrays of a shape and a type on a single worker, whose tile is the whole
    array."""

    __slots__ = ("layout", "spec")

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.layout = Layout.replicated_on(shape, Mesh.line(1))
        self.spec = tile_spec(self.layout, dtype, 0)

    @property
    def tile(self) -> Tile:
        """The tile of the single worker."""
        return self.layout.tiles(0)[0]


_whole_tile = lru_cache(maxsize=4096)(WholeTile)


@final
class PreparedKernel(Struct, eq=False):
    """The computation of nodes of one signature.

    whole      the placement of the result
    function   NumPy's function of operands and result, if it is faster than the kernel
    allocates  the function is called without memory for the result, and returns a new array
    type       NumPy's type of the result, if there is one
    """

    whole: WholeTile
    function: Callable[..., Any] | None
    allocates: bool
    type: np.dtype[Any] | None


def prepared_kernel(node: Node) -> PreparedKernel:
    """Return the computation of a node, which nodes of its signature share."""
    signature = node.signature
    if signature is None:
        return _prepared(node)
    if signature.prepared_kernel is None:
        signature.prepared_kernel = _prepared(node)
    prepared: PreparedKernel = signature.prepared_kernel
    return prepared


def _prepared(node: Node) -> PreparedKernel:
    whole, operation = _whole_tile(node.shape, node.dtype), node.operation
    ufunc, numpy_function = operation.numpy_ufunc, operation.numpy_function
    arrays = node, *node.inputs
    dtypes = [x.dtype for x in arrays]
    function: Callable[..., object] | None = None
    if ufunc is not None and is_faster_by_numpy(ufunc, whole.layout.size, dtypes):
        function = ufunc.function
    elif numpy_function is not None and all(x.size and x.dtype in NUMPY for x in arrays):
        function = numpy_function(node)
        if function is not None and operation.flops(node) > MANY_FLOPS:
            function = partial(run_on_free_processors, function)
    numpy_type = NUMPY.get(node.dtype)
    allocates = _has_array_result(function, node, numpy_type)
    return PreparedKernel(whole, function, allocates, numpy_type)


def _has_array_result(function: Callable[..., object] | None, node: Node, numpy_type: Any) -> bool:
    """Return True if a function without memory for its result returns a new array of this type.

    Of operands without dimensions, NumPy's functions return a number.
    """
    if not isinstance(function, np.ufunc) or not node.shape or function.nin != len(node.inputs):
        return False
    types = [NUMPY.get(x.dtype) for x in node.inputs]
    return bool(function.resolve_dtypes((*types, None))[-1] == numpy_type)


def call_kernel(node: Node, whole: WholeTile, views: Mapping[Node, View], context: Context) -> None:
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
    run_on_free_processors(node.operation.kernel(local))


def number_view(leaf: Node) -> View:
    """Return a number as a 0-d array, not to be written."""
    value = leaf.value if leaf.operation is SCALAR else leaf.attributes["value"]
    if value and type(value) is not complex:  # two zeros are equal but may differ in sign
        return _cached_number(value, leaf.dtype.name)
    return _new_number(value, leaf.dtype.name)


def number_array(leaf: Node) -> np.ndarray[Any, Any] | None:
    """Return a number as a 0-d array, not to be written; None if NumPy has no such type."""
    return number_view(leaf).array


def _new_number(value: bool | int | float | complex, name: str) -> View:
    dtype = DTYPES[name]
    if dtype in NUMPY:
        return View(np.array(value, NUMPY[dtype]))
    return View(None, torch.zeros((), dtype=to_torch(dtype)).fill_(value))


_cached_number = lru_cache(maxsize=1024, typed=True)(_new_number)
