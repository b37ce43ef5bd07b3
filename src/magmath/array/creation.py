"""Creation functions of the array API, with a `layout` besides."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from magmath.array import session
from magmath.array.array import Array, Number, Variable, bind_layout, copy_of, user_line
from magmath.array.engine import Data, data_of
from magmath.core.dtypes import DEFAULT_FLOAT, DType, as_dtype, bool_, default_dtype, int64
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.layout import Layout, Rule, Split
from magmath.memory.tensors import from_torch, to_torch
from magmath.ops import creation
from magmath.ops import elementwise as e
from magmath.ops.leaves import input_leaf, parameter
from magmath.ops.movement import redistribute

LayoutLike = Layout | Rule | None
DTypeLike = DType | str | type | None
SMALL_BYTES = 1 << 16  # smaller arrays are replicated by default, larger ones split


def default_layout(shape: Shape, nbytes: int) -> Layout:
    """Small arrays on every worker, larger ones split along the first dimension long enough."""
    mesh = session.engine().pool.mesh
    if nbytes > SMALL_BYTES and mesh.size > 1:
        for d, extent in enumerate(shape):
            if extent >= mesh.size:
                return Layout.whole(shape, mesh).replace_split(d, Split.even(0, extent, mesh.size))
    return Layout.whole(shape, mesh)


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    copy: bool | None = None,
    device: object = None,
) -> Array:
    """An array from nested sequences, Python numbers, NumPy arrays, torch tensors or an Array.

    layout: a Layout or a rule such as `Layout.split(0)`; by default small arrays are replicated
    and larger ones split along their first dimension. Raises DTypeError for element types that
    magmath lacks, LayoutError for a layout that does not fit.
    """
    if isinstance(obj, Array):
        return _converted(obj, dtype, layout, bool(copy))
    tensor = _tensor(obj, None if dtype is None else as_dtype(dtype))
    shape, element = tuple(tensor.shape), from_torch(tensor.dtype)
    if layout is None:
        bound = default_layout(shape, tensor.numel() * element.itemsize)
    else:
        bound = bind_layout("asarray", layout, shape)
    pool = session.engine().pool
    data = Data(pool, pool.put(tensor, bound), shape, element, bound)
    return Array(input_leaf(shape, element, bound, data))


def _converted(array: Array, dtype: DTypeLike, layout: LayoutLike, copy: bool) -> Array:
    result = array
    if dtype is not None and as_dtype(dtype) != array.dtype:
        result = Array(apply(e.ASTYPE, array.node, dtype=as_dtype(dtype), line=user_line()))
    if layout is not None:
        result = result.redistribute(layout)
    return copy_of(array) if copy and result is array else result


def _tensor(obj: Any, dtype: DType | None) -> torch.Tensor:
    """A contiguous CPU tensor with the values of `obj`."""
    if isinstance(obj, torch.Tensor):
        tensor = obj.detach().cpu()
    else:
        values = np.ascontiguousarray(_numpy(obj)).reshape(np.shape(obj))
        if min(values.strides, default=0) < 0:  # of an extent of 1, or 0
            values = values.copy()
        tensor = torch.from_numpy(values)
    if dtype is not None:
        tensor = tensor.to(to_torch(dtype))
    return tensor.contiguous()


def _numpy(obj: Any) -> np.ndarray[Any, Any]:
    if isinstance(obj, (bool, int, float, complex)) and not isinstance(obj, np.generic):
        return np.asarray(obj, dtype=default_dtype(obj).name)
    values = np.asarray(obj)
    if isinstance(obj, (list, tuple)) and values.dtype == np.float64:
        values = values.astype(DEFAULT_FLOAT.name)
    elif isinstance(obj, (list, tuple)) and values.dtype == np.complex128:
        values = values.astype(np.complex64)
    if values.dtype.kind not in "biufc" or values.dtype.name in ("float128", "complex256"):
        raise DTypeError(
            f"asarray: NumPy type {values.dtype} has no counterpart; convert it to one of the "
            f"array API's types first"
        )
    if not values.flags.writeable or not values.dtype.isnative:
        values = values.astype(values.dtype.newbyteorder("="), copy=True)
    return values


def variable(
    name: str, value: Any, *, dtype: DTypeLike = None, layout: LayoutLike = None
) -> Variable:
    """A variable with this first value: what optimizers change, and `grad` differentiates by.

    It lies in `layout`, or where none is given as the value lies (see `asarray`).
    """
    element = DEFAULT_FLOAT if dtype is None and isinstance(value, (int, float)) else dtype
    array = asarray(value, dtype=element, layout=layout)
    return Variable(name, data_of(copy_of(array, array.node.layout).evaluated()))


def constant(value: Any, *, dtype: DTypeLike = None, layout: LayoutLike = None) -> Array:
    """An array that is no variable; the graph's word for `asarray`, with numbers as floats."""
    element = DEFAULT_FLOAT if dtype is None and isinstance(value, (int, float)) else dtype
    return asarray(value, dtype=element, layout=layout)


def _made(node: Node, layout: LayoutLike) -> Array:
    node.line = user_line()
    if layout is None:
        return Array(node)
    return Array(redistribute(node, bind_layout(node.name, layout, node.shape)))


def normal_shape(shape: int | tuple[int, ...]) -> Shape:
    extents = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
    if any(n < 0 for n in extents):
        raise ShapeError(f"creation: extents must be at least 0, was given {extents}")
    return extents


def full(
    shape: int | tuple[int, ...],
    fill_value: Number | Array,
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """An array filled with one number, or with the value of a 0-d array."""
    if isinstance(fill_value, Array):
        if fill_value.shape != ():
            raise ShapeError(
                f"full: needs a number or a 0-d array, was given shape {fill_value.shape}; stretch "
                f"it with mm.broadcast_to(x, shape)"
            )
        element = fill_value.dtype if dtype is None else as_dtype(dtype)
        value = e.astype(fill_value.node, element)
    else:
        element = default_dtype(fill_value) if dtype is None else as_dtype(dtype)
        value = parameter(fill_value, element)
    return _made(creation.full(normal_shape(shape), value), layout)


def zeros(
    shape: int | tuple[int, ...],
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """An array of zeros, float32 by default."""
    return full(shape, 0, dtype=dtype or DEFAULT_FLOAT, layout=layout)


def ones(
    shape: int | tuple[int, ...],
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """An array of ones, float32 by default."""
    return full(shape, 1, dtype=dtype or DEFAULT_FLOAT, layout=layout)


def empty(
    shape: int | tuple[int, ...],
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """An array whose values do not matter (zeros)."""
    return zeros(shape, dtype=dtype, layout=layout)


def full_like(x: Array, /, fill_value: Number, *, dtype: DTypeLike = None) -> Array:
    """An array of x's shape and type, filled with one number."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype)


def zeros_like(x: Array, /, *, dtype: DTypeLike = None) -> Array:
    """Zeros of x's shape and type."""
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Array, /, *, dtype: DTypeLike = None) -> Array:
    """Ones of x's shape and type."""
    return full_like(x, 1, dtype=dtype)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """start, start + step, … up to but not including stop (or 0 … start)."""
    if step == 0:
        raise ShapeError("arange: step must not be 0")
    first, last = (0, start) if stop is None else (start, stop)
    extent = max(0, int(np.ceil((last - first) / step)))
    integer = all(isinstance(v, int) for v in (first, last, step))
    element = as_dtype(dtype) if dtype is not None else (int64 if integer else DEFAULT_FLOAT)
    count = creation.iota((extent,), 0, element)
    scaled = e.multiply(count, parameter(step, element))
    return _made(e.add(scaled, parameter(first, element)), layout)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DTypeLike = None,
    endpoint: bool = True,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """`num` evenly spaced numbers from start to stop."""
    element = as_dtype(dtype) if dtype is not None else DEFAULT_FLOAT
    step = (stop - start) / max(num - 1 if endpoint else num, 1)
    count = creation.iota((num,), 0, element)
    scaled = e.multiply(count, parameter(step, element))
    return _made(e.add(scaled, parameter(start, element)), layout)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
    device: object = None,
) -> Array:
    """Ones on the k-th diagonal, zeros elsewhere."""
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    rows, columns = creation.iota(shape, 0), creation.iota(shape, 1)
    on_diagonal = e.call("equal", e.add(rows, parameter(k, int64)), columns)
    assert on_diagonal.dtype == bool_
    return _made(e.astype(on_diagonal, as_dtype(dtype or DEFAULT_FLOAT)), layout)
