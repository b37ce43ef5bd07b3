"""The arguments of compiled functions: their data, their signatures, and their placeholders in a
trace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import numpy as np

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.storage.element_storage import can_overlap
from magmath.arrays.traced_scalar import TracedScalar, TypedScalar
from magmath.arrays.variables.variable import Variable
from magmath.arrays.views import check_not_read_only, sharing_arrays
from magmath.core.dtypes import (
    DTYPE_OF_PYTHON,
    PYTHON_NUMBERS,
    DType,
    as_dtype,
    convert_number,
    int64,
)
from magmath.engine.engine import Engine
from magmath.engine.remote_array import RemoteArray, remote_array_of
from magmath.engine.traces.captured_arrays import Captures
from magmath.errors import OptionError, ReadOnlyError
from magmath.graph import Graph, Node
from magmath.layout import Layout
from magmath.ops.leaves import input_leaf, scalar

_SCALARS = (np.number, np.bool_)
"""NumPy's numbers, which have element types."""


@final
@dataclass(frozen=True, slots=True)
class KnownNumber:
    """A number that a function needs while it is traced, and for which it is traced.

    Numbers are compared by their text, which tells 1 from 1.0 and True, and 0.0 from -0.0.
    """

    text: str
    value: bool | int | float | complex | np.number[Any] | np.bool_ = field(compare=False)


def _is_number(value: Any) -> bool:
    """Return True for Python's and NumPy's numbers; not for objects of derived classes, such as
    members of an `IntEnum`, which functions may compare by identity."""
    return type(value) in PYTHON_NUMBERS or isinstance(value, _SCALARS)


def with_arrays(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments with an array in place of each array of NumPy or another library; one that
    occurs twice becomes one array."""
    converted: dict[int, Array] = {}
    leaves = []
    for x in arguments:
        if hasattr(x, "__dlpack__") and not isinstance(x, Array):
            if id(x) not in converted:
                converted[id(x)] = asarray(x)
            x = converted[id(x)]
        leaves.append(x)
    return leaves


def check_updatable(array: Any, original: Any) -> None:
    """Raise ReadOnlyError for an argument that the function updates in place, but that cannot be
    written, before anything else has changed."""
    reason = None
    if isinstance(original, np.ndarray) and not original.flags.writeable:
        reason = "a NumPy array of shape {} that is only read; copy it first: x = x.copy()"
    elif hasattr(original, "copy_"):
        from torch import is_grad_enabled, is_inference_mode_enabled

        owner = original if original._base is None else original._base
        if owner.requires_grad and owner.is_leaf and is_grad_enabled():
            reason = "a tensor of shape {} that requires gradients; pass x.detach()"
        elif original.is_inference() and not is_inference_mode_enabled():
            reason = "a tensor of shape {} of PyTorch's inference mode; pass x.clone()"
        elif any(
            n > 1 and not step for n, step in zip(original.shape, original.stride(), strict=True)
        ):
            reason = "a tensor of shape {} whose elements share memory; copy it first: x.clone()"
    if reason is not None:
        raise ReadOnlyError(
            "compile: the function updates an argument in place, "
            + reason.format(tuple(original.shape))
        )
    if isinstance(array, Array) and array.view_of is not None:
        check_not_read_only(array)


def update_arguments(
    engine: Engine, updated: Sequence[int], arguments: Sequence[Any], leaves: Sequence[Node]
) -> None:
    """Give the arrays at these positions the values of leaves, which have been computed; Ctrl-C
    does not separate the changes."""
    with engine.pool.defer_interrupts():
        for i, leaf in zip(updated, leaves, strict=True):
            if isinstance(arguments[i], Array):
                arguments[i].replace_value(leaf)


def write_back(array: Any, original: Any) -> None:
    """Write the values of an argument that the function has updated in place into the array of
    NumPy or PyTorch that the user has given."""
    if isinstance(original, np.ndarray):
        np.copyto(original, array.numpy())
    elif hasattr(original, "copy_"):
        original.copy_(array.fetch())


def is_update_shared(
    updated: Sequence[int], arguments: Sequence[Any], originals: Sequence[Any], captures: Captures
) -> bool:
    """Return True if the update in place of an argument changes another argument too, or an array
    that the function reads from outside.

    The program of the function computes with the values from before the call.
    """
    for i in updated:
        memory = _memory_of(originals[i])
        if memory is not None:
            others = [x for x in originals if x is not originals[i]] + captures.foreign_arrays()
            other_memories = [_memory_of(x) for x in others]
            if any(can_overlap(memory, other) for other in other_memories if other is not None):
                return True
        for x in sharing_arrays(arguments[i]):
            is_argument = x is not arguments[i] and any(x is argument for argument in arguments)
            if is_argument or captures.contains(x.node):
                return True
    return False


def _memory_of(x: Any) -> np.ndarray[Any, Any] | None:
    """Return the memory of an array of NumPy, or of a tensor, whose elements are not read; None for
    other objects."""
    if isinstance(x, np.ndarray):
        return x
    if not hasattr(x, "data_ptr"):
        return None
    size = x.element_size()
    interface = {
        "version": 3, "typestr": f"|V{size}", "data": (x.data_ptr(), True),
        "shape": tuple(x.shape), "strides": tuple([n * size for n in x.stride()]),
    }  # fmt: skip
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def argument_value(argument: Any) -> Any:
    """Return the data of an array argument, other arguments and variables unchanged."""
    if isinstance(argument, Variable) or not isinstance(argument, Array):
        return argument
    return remote_array_of(argument.evaluated_leaf())


def with_known_numbers(values: Sequence[Any], needed: Iterable[int]) -> list[Any]:
    """Return arguments with the numbers at these positions as known ones."""
    arguments = list(values)
    for i in needed:
        if _is_number(arguments[i]):
            arguments[i] = KnownNumber(repr(arguments[i]), arguments[i])
    return arguments


def argument_signature(value: Any) -> Hashable:
    """Return the properties of an argument that its program depends on."""
    if isinstance(value, RemoteArray):
        return value.shape, value.dtype, value.layout
    if _is_number(value):
        return "number", type(value).__name__
    if isinstance(value, Variable):
        return "variable", value.leaf  # which stays, so that no other variable is taken for it
    hashable: Hashable = value
    try:
        hash(hashable)
    except TypeError:
        raise OptionError(
            f"compile: an argument must be an array, a number or hashable, was given a "
            f"{type(value).__name__}; let the function read it from outside"
        ) from None
    return type(value), hashable  # equal members of two enumerations are two objects


def has_repeated_arrays(arguments: Sequence[Any]) -> bool:
    """Return True if an array occurs more than once among positional arguments."""
    if len(set(map(id, arguments))) == len(arguments):
        return False
    arrays = [id(x) for x in arguments if type(x) is Array]  # numbers may be one object
    return len(set(arrays)) < len(arrays)


def first_occurrences(leaves: Sequence[Any]) -> Sequence[int]:
    """Return for each argument the position of the first equal one; empty if all differ.

    Only arrays are compared, by identity.
    """
    first = {id(x): i for i, x in reversed(list(enumerate(leaves))) if isinstance(x, Array)}
    same = tuple([first.get(id(x), i) for i, x in enumerate(leaves)])
    return () if same == tuple(range(len(leaves))) else same


def placeholder_of(value: Any) -> Node | None:
    """Return a leaf without a value for an array or number argument, None for other arguments."""
    if isinstance(value, RemoteArray):
        return input_leaf(value.shape, value.dtype, value.layout, None)
    if isinstance(value, _SCALARS):
        return scalar(None, as_dtype(value.dtype))
    if _is_number(value):
        return scalar(None, DTYPE_OF_PYTHON[type(value)])
    return None


def traced_arguments(
    placeholders: Sequence[Node | None], values: Sequence[Any], same: Sequence[int]
) -> list[Any]:
    """Return the arguments of a function for its trace."""
    arguments = [_traced_argument(p, v) for p, v in zip(placeholders, values, strict=True)]
    return [arguments[i] for i in same] if same else arguments


def _traced_argument(placeholder: Node | None, value: Any) -> Any:
    if placeholder is None:
        return value.value if isinstance(value, KnownNumber) else value
    if isinstance(value, RemoteArray):
        return Array(placeholder)
    if isinstance(value, _SCALARS):
        return TypedScalar(placeholder)
    return TracedScalar(placeholder, value)


def number_of_run(value: Any) -> Any:
    """Return an argument for a run, with a Python number in place of a NumPy scalar."""
    return value.item() if isinstance(value, _SCALARS) else value


def is_array_or_number(value: Any) -> bool:
    """Return True for the data of an array, and for a Python number."""
    return type(value) in (RemoteArray, KnownNumber, *PYTHON_NUMBERS)


@final
class RequiredArgument(NamedTuple):
    """The properties that an argument must have: its class, the element type and the layout of an
    array, and the text of a number for which the function is traced."""

    kind: type
    dtype: DType | None = None
    layout: Layout | None = None
    text: str | None = None


def required_argument(value: Any) -> RequiredArgument:
    """Return the properties of an argument that other ones for the same program must have."""
    if type(value) is RemoteArray:
        return RequiredArgument(Array, value.dtype, value.layout)
    if type(value) is KnownNumber:
        return RequiredArgument(type(value.value), text=value.text)
    return RequiredArgument(type(value))


def integer_limits(traced: Graph, position: Mapping[Node, int]) -> list[tuple[int, DType]]:
    """Return the integer types that Python integers among the arguments must fit.

    These are int64 and the types of arrays with which they are combined, by argument position.
    """
    integers = {leaf for leaf in position if leaf.name == "scalar" and leaf.dtype is int64}
    limits = [(leaf, int64) for leaf in integers]
    for node in traced.nodes:
        if node.name == "astype" and node.inputs[0] in integers and node.dtype.is_integer:
            limits.append((node.inputs[0], node.dtype))
    return [(position[leaf], dtype) for leaf, dtype in limits]


def check_limits(limits: Sequence[tuple[int, DType]], values: Sequence[Any]) -> None:
    """Raise RangeError if an integer among the arguments does not fit the type of its operation."""
    for i, dtype in limits:
        convert_number(values[i], dtype, "compile")
