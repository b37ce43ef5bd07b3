"""Conversion of values in the controller to leaves whose data the workers store.

The values are nested sequences, Python numbers, NumPy arrays and PyTorch tensors. This module also
binds layouts that users give to the current pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import NotImplementedType
from typing import Any

import numpy as np
import torch

from magmath.arrays.inputs.number_list import LISTS, is_number, number_list
from magmath.arrays.lazy_array import LazyArray
from magmath.core.dtypes import DType, bfloat16, convert_number, int64, uint64
from magmath.core.promotion import default_complex_dtype, get_default_dtype
from magmath.engine import session
from magmath.engine.array_sizes import MAX_BYTES_WITH_WORKERS
from magmath.engine.remote_array import RemoteArray
from magmath.engine.user_line import user_line_text
from magmath.errors import DTypeError, LayoutError, ShapeError
from magmath.graph import Node, Shape
from magmath.layout import Layout, Rule, Split
from magmath.memory.torch_dtypes import as_tensor, from_torch, to_torch
from magmath.ops import elementwise as e
from magmath.ops.leaves import input_leaf

LayoutLike = Layout | Rule | None


def leaf_of_values(obj: Any, dtype: DType | None = None, layout: LayoutLike = None) -> Node:
    """Return the leaf of an array with the values of `obj`, copied to the workers.

    Raises as `mm.asarray`.
    """
    if type(obj) is np.ndarray and dtype is None and layout is None:
        leaf = session.engine().eager_computation.copied_leaf(obj)
        if leaf is not None:
            return leaf
    return leaf_of_tensor(_tensor(obj, dtype), layout)


def leaf_of_tensor(tensor: torch.Tensor, layout: LayoutLike = None) -> Node:
    """Copy a contiguous CPU tensor to the workers; return the leaf of the array."""
    shape, element = tuple(tensor.shape), from_torch(tensor.dtype)
    if layout is None:
        bound = default_layout(shape, tensor.numel() * element.itemsize)
    else:
        bound = bind_layout("asarray", layout, shape)
    engine = session.engine()
    pool = engine.pool
    if layout is None and element is not bfloat16:
        leaf = engine.eager_computation.copied_leaf(tensor.numpy())
        if leaf is not None:
            return leaf
    data = RemoteArray(pool, pool.put(tensor, bound, user_line_text()), shape, element, bound)
    engine.pending_memory.count_bytes(data.nbytes)
    return input_leaf(shape, element, bound, data)


def as_node(operation: str, value: Any) -> Node:
    """Return the node of an array, or a leaf for NumPy arrays and scalars, Python numbers, nested
    lists, tuples and ranges.

    Raises TypeError for other objects.
    """
    if isinstance(value, LazyArray):
        return value.node
    if isinstance(value, (np.ndarray, np.generic, *LISTS)) or is_number(value):
        return leaf_of_values(value)
    if hasattr(type(value), "refuse"):  # elements that a mask selects, a variable not yet made
        raise value.refuse(operation)
    raise operand_error(operation, value)


def operand_error(operation: str, value: Any) -> TypeError:
    """Return the error for an object that is no operand."""
    name = "None" if value is None else type(value).__name__
    return TypeError(
        f"{operation}: needs magmath or NumPy arrays, or lists, was given {name}; "
        f"{_remedy_for(value)}"
    )


def foreign_operand(operation: str, value: Any, *, has_refused: bool = False) -> NotImplementedType:
    """Return NotImplemented for an operand of another library, so that Python tries its operator.

    Raises TypeError for a tensor of PyTorch, whose operators take no other arrays, and for an array
    that has refused this operation.
    """
    kind = type(value)
    is_array = hasattr(kind, "__array__") or hasattr(kind, "toarray")
    if kind.__module__.partition(".")[0] == "torch" or (has_refused and is_array):
        raise operand_error(operation, value)
    return NotImplemented  # type: ignore[no-any-return]


def _remedy_for(value: Any) -> str:
    """Return the remedy for an object that is no array: how to make one of it."""
    if any(hasattr(value, name) for name in ("__dlpack__", "__array__", "__array_interface__")):
        return "convert it with mm.asarray(x)"
    if hasattr(value, "toarray"):  # a sparse matrix of SciPy
        return "convert it with x.toarray()"
    if isinstance(value, (str, bytes)):
        return "convert text to a number with float(x)"
    if isinstance(value, Mapping):
        return "give a value of the dictionary"
    if isinstance(value, Iterable):
        return "convert it with mm.asarray(list(x))"
    return "give an array, a number or nested lists of numbers"


def default_layout(shape: Shape, nbytes: int) -> Layout:
    """Return the default layout of new arrays.

    Small arrays are replicated; larger ones are split along the first dimension whose extent is at
    least the number of workers.
    """
    mesh = session.engine().pool.mesh
    if nbytes > MAX_BYTES_WITH_WORKERS and mesh.size > 1:
        for d, extent in enumerate(shape):
            if extent >= mesh.size:
                return Layout.replicated_on(shape, mesh).replace_split(
                    d, Split.even(0, extent, mesh.size)
                )
    return Layout.replicated_on(shape, mesh)


def bind_layout(operation: str, layout: Layout | Rule, shape: Shape) -> Layout:
    """Return the layout for this shape on the current pool.

    Raises LayoutError if the layout does not fit the shape or the pool.
    """
    pool = session.engine().pool
    if isinstance(layout, Rule):
        layout = layout.bind(shape, pool.mesh)
    if not isinstance(layout, Layout):
        raise LayoutError(
            f"{operation}: needs a layout such as mm.Layout.split(0), was given {layout!r}"
        )
    if layout.shape != shape:
        raise LayoutError(
            f"{operation}: the layout is for shape {layout.shape}, the array has shape {shape}"
            "; bind the rule to the array's shape, or reshape the array"
        )
    strangers = sorted(set(layout.mesh.workers) - set(pool.mesh.workers))
    if strangers:
        raise LayoutError(
            f"{operation}: the layout is for another mesh: the pool has workers "
            f"0 to {pool.workers - 1}, the layout names {strangers}; bind the rule again, or start "
            f"more workers with mm.init(workers={max(strangers) + 1})"
        )
    return layout


_NUMPY_TYPES = frozenset(
    {"bool", "float16", "float32", "float64", "complex64", "complex128"}
    | {f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)}
)
"""NumPy's element types that magmath has too."""


def _tensor(obj: Any, dtype: DType | None) -> torch.Tensor:
    """Return a contiguous CPU tensor with the values of `obj`."""
    if isinstance(obj, torch.Tensor):
        tensor = obj.detach().cpu().resolve_conj().resolve_neg()
    else:
        values = _numpy(obj, dtype)
        values = np.ascontiguousarray(values).reshape(values.shape)
        if min(values.strides, default=0) < 0:  # possible for an extent of 1 or 0
            values = values.copy()
        if values.dtype.name == "bfloat16":
            tensor = as_tensor(values.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = as_tensor(values)
    if dtype is not None:
        e.check_imaginary_part("asarray", from_torch(tensor.dtype), dtype)
        tensor = tensor.to(to_torch(dtype))
    return tensor.contiguous()


def _numpy(obj: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """Return the values as a NumPy array.

    Python floats and complex numbers have the default type unless `dtype` is given.
    """
    listed = number_list(obj) if isinstance(obj, LISTS) else None
    plain = is_number(obj) or listed is not None
    try:
        values = np.asarray(obj)
    except ValueError as error:
        raise ShapeError(
            "asarray: nested sequences must have equal lengths in each dimension; make them so"
        ) from error
    if listed is not None and listed.kind is int and values.dtype.kind == "f":
        values = np.asarray(obj, dtype=object)  # no integer type of NumPy holds all of them
    if dtype is None and plain and values.dtype.kind in "fc":
        default = get_default_dtype() if values.dtype.kind == "f" else default_complex_dtype()
        values = values.astype(default.name)
    if not hasattr(obj, "dtype"):
        values = _within(values, dtype)
    if values.dtype.name == "bfloat16":  # of the package ml_dtypes, as JAX has
        return values
    if values.dtype.name not in _NUMPY_TYPES:
        if not hasattr(obj, "dtype"):
            raise _no_numbers_error(obj, values)
        raise DTypeError(
            f"asarray: NumPy type {values.dtype} has no counterpart; convert it to one of the "
            f"array API's types first"
        )
    name = values.dtype.name
    native = np.asarray(values, dtype=name)
    return native.view(name)  # C's long long is an int64 too, which only a view makes one


def _no_numbers_error(obj: Any, values: np.ndarray[Any, Any]) -> DTypeError:
    """Return the error for an object, or for elements of nested lists, that are not numbers."""
    elements = [*np.asarray(obj, dtype=object).flat]
    invalid = next((x for x in elements if not is_number(x)), obj)
    where = "" if invalid is obj else " in a list"
    remedy = _remedy_for(invalid)
    if invalid is None and where:
        remedy = "a missing number is float('nan')"
    elif isinstance(invalid, np.generic):
        remedy = f"NumPy type {values.dtype} has no counterpart"
    return DTypeError(
        f"asarray: needs arrays, numbers or nested lists of numbers, was given "
        f"{invalid!r:.40}{where}; {remedy}"
    )


def _within(values: np.ndarray[Any, Any], dtype: DType | None) -> np.ndarray[Any, Any]:
    """Return values made of Python numbers after a check of the range of integers.

    NumPy stores integers of more than 64 bits as objects, which are converted here.
    """
    if values.dtype.kind == "O" and all(map(is_number, values.flat)):
        unsigned = all(0 <= value < 2**64 for value in values.flat) if dtype is None else False
        element = dtype or (uint64 if unsigned else int64)
        fit = [convert_number(value, element, "asarray") for value in values.flat]
        stored = element.name if element.is_integer else None
        return np.asarray(fit, dtype=stored).reshape(values.shape)
    if dtype is not None and dtype.is_integer and values.size and values.dtype.kind in "iuf":
        for extreme in (values.min(), values.max()):
            convert_number(extreme.item(), dtype, "asarray")
    return values
