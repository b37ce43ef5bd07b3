"""Calls of modules with abstract inputs, which have a shape and a type but no values.

Such a call makes the parameters of a module and determines the shapes of its outputs, from its
`__call__` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, NamedTuple, final

from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variables.variable import is_plain_array
from magmath.core.dtypes import DType, as_dtype
from magmath.core.promotion import get_default_dtype
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.errors import DTypeError, ShapeError
from magmath.graph import topological
from magmath.nn.call_state import CALLS
from magmath.ops.leaves import input_leaf

if TYPE_CHECKING:
    from magmath.api.creation import DTypeLike
    from magmath.graph import Node, Shape


@final
class AbstractArray:
    """The shape and element type of an array."""

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


def is_abstract_call() -> bool:
    """Return True within `trace_call`, where inputs have a shape but no values."""
    return CALLS.abstract_calls > 0


def abstract_arrays(
    operation: str, shapes: Sequence[Any], dtype: DTypeLike
) -> tuple[AbstractArray, ...]:
    """Return abstract arrays of these shapes. Raises ShapeError for other objects."""
    element = get_default_dtype() if dtype is None else as_dtype(dtype)
    for shape in shapes:
        is_shape = isinstance(shape, (tuple, list)) and all(hasattr(n, "__index__") for n in shape)
        if not is_shape:
            raise ShapeError(
                f"{operation}: needs the shape of each input, batch included, such as (1, 784); "
                f"was given {shape!r}"
                "; pass such as build((1, 784))"
            )
    return tuple([AbstractArray(tuple(map(int, shape)), element) for shape in shapes])


def abstract_inputs(
    operation: str, module: Callable[..., Any], shapes: Sequence[Any], dtype: DTypeLike
) -> tuple[AbstractArray, ...]:
    """Return abstract arrays of these shapes, the inputs of a module.

    Raises ShapeError, which names the operation, if the module takes another number of inputs.
    """
    parameters = [p.replace(annotation=p.empty) for p in _parameters_of(module)]
    try:
        Signature(parameters).bind(*shapes)
        fits = bool(shapes) or all(p.kind != p.VAR_POSITIONAL for p in parameters)
    except TypeError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{operation}: {type(module).__name__} takes the inputs "
            f"({', '.join(map(str, parameters))}), was given {len(shapes)} shapes; give the "
            f"shape of each input, batch included, such as module.{operation}((1, 784))"
        )
    return abstract_arrays(operation, shapes, dtype)


@contextmanager
def types_of_shapes(operation: str, dtype: DTypeLike) -> Iterator[None]:
    """Add to a DTypeError in this block, if the inputs have the default type, that `operation` was
    given shapes alone."""
    try:
        yield
    except DTypeError as error:
        if dtype is None:
            error.add_note(
                f"{operation} was given a shape alone; for integer inputs pass dtype='int64'"
            )
        raise


def _parameters_of(module: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of the `__call__` of a module, without `self`."""
    return list(signature(type(module).__call__).parameters.values())[1:]


def call_module(module: Callable[..., Any], inputs: Any) -> Any:
    """Call a module with one input, a tuple of arguments, or a dictionary of keyword arguments,
    while a function of magmath is traced."""
    with tracing.calling(f"magmath compiles the module {type(module).__name__}"):
        if isinstance(inputs, dict):
            return module(**inputs)
        return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def trace_call(module: Callable[..., Any], inputs: Any) -> Any:
    """Call a module with abstract arrays; return abstract outputs, nested as the outputs are.

    Computes and draws only the initial values of parameters; assigns no variables.
    """
    traced = _abstract_call(module, inputs)
    return unflatten(traced.nesting, [AbstractArray(x.shape, x.dtype) for x in traced.outputs])


def trace_nodes(module: Callable[..., Any], inputs: Any) -> tuple[list[Node], list[Node]]:
    """Return the leaves of the inputs, and the nodes of the outputs, of a call with abstract
    arrays. See `trace_call`."""
    traced = _abstract_call(module, inputs)
    return [x.node for x in traced.inputs], [x.node for x in traced.outputs]


@final
class _AbstractCall(NamedTuple):
    """The inputs and outputs of a call without values, flat, and the nesting of the outputs."""

    inputs: list[Array]
    outputs: list[Any]
    nesting: Any


def _abstract_call(module: Callable[..., Any], inputs: Any) -> _AbstractCall:
    """Call a module with arrays that have no values."""
    environment = session.engine().environment
    leaves, tree = flatten(inputs)
    with tracing.tracing(Trace()), _attributes_restored(module):
        arrays = [
            Array(input_leaf(x.shape, x.dtype, environment.replicated(x.shape), None))
            for x in leaves
        ]
        CALLS.abstract_calls += 1
        try:
            outputs, nesting = flatten(call_module(module, unflatten(tree, arrays)))
        finally:
            CALLS.abstract_calls -= 1
    return _AbstractCall(arrays, outputs, nesting)


@final
class _SavedAttributes(NamedTuple):
    """The attributes of a module, and the lists and dictionaries among them with copies of these.

    `module` is a reference, so that its identity stays unique.
    """

    module: Any
    attributes: dict[str, Any]
    containers: list[tuple[Any, Any]]


@contextmanager
def _attributes_restored(module: Any) -> Iterator[None]:
    """Restore after this block the attributes, and the lists and dictionaries in attributes, in
    which the module and its parts have stored arrays without values, such as their last output."""
    saved = {
        id(part): _SavedAttributes(part, dict(vars(part)), _containers(part))
        for part in _parts(module)
    }
    try:
        yield
    finally:
        for part in _parts(module):
            former = saved.get(id(part), _SavedAttributes(part, {}, []))
            _restore_attributes(part, former.attributes)
            _restore_containers(former.containers)


def _restore_attributes(module: Any, former: Mapping[str, Any]) -> None:
    """Give the attributes of a module in which a traced call has stored arrays their former values;
    delete them if they had none."""
    for name, value in [*vars(module).items()]:
        if value is former.get(name):
            continue
        was_array = is_plain_array(value) and is_plain_array(former.get(name))
        if was_array or _has_traced(value):
            del vars(module)[name]
            if name in former:
                vars(module)[name] = former[name]


def _restore_containers(containers: Sequence[tuple[Any, Any]]) -> None:
    """Give lists and dictionaries in which a traced call has stored arrays their former items."""
    for container, items in containers:
        if _has_traced(container):
            container.clear()
            (container.update if isinstance(container, dict) else container.extend)(items)


def _parts(module: Any) -> list[Any]:
    """Return a module and the modules in it; none for other functions."""
    return module.modules() if hasattr(type(module), "named_parameters") else []


def _containers(module: Any) -> list[tuple[Any, Any]]:
    """Return the lists and dictionaries in a module's attributes, with copies of them."""
    containers = [value for value in vars(module).values() if type(value) in (list, dict)]
    return [(container, container.copy()) for container in containers]


def _has_traced(value: Any) -> bool:
    """Return True for an array that is no variable and was made while a function was traced, and
    for lists, tuples and dictionaries that contain such an array."""
    return any(
        is_plain_array(part)
        and any(x.is_leaf and x.value is None for x in topological((part.node,), pending=True))
        for part in flatten(value)[0]
    )
