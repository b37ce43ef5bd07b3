"""Functions whose gradients are written by the user instead of derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from magmath.api.creation import asarray
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.dtypes import DType
from magmath.engine.lifetimes.kept_expressions import keeping_expressions
from magmath.engine.traces.tracing import Scope, tracing
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, ShapeError, TracingError
from magmath.graph import Node, apply, collecting_new_nodes
from magmath.ops import elementwise as e
from magmath.ops.custom_gradients import GradientRule, custom_call, custom_result
from magmath.transform.function_argument import named, require_function
from magmath.transform.traced_function import closure_converted, placeholder, result_nodes

Pullback = Callable[[Any], Any]
_NAME = "custom_gradient"


def custom_gradient(function: Callable[..., tuple[Any, Pullback]]) -> Callable[..., Any]:
    """Return a function with a gradient of its own.

    The decorated function returns its value and its pullback: a function from the gradient of a
    later result with respect to the value to the gradients with respect to the arguments.

        @mm.custom_gradient
        def clipped(x, bound):
            return x, lambda g: (mm.clip(g, -bound, bound), None)

    The pullback returns a tuple with an entry for each positional argument, those with defaults
    included; of a function of one argument, the entry itself. An entry has the nesting and the
    shapes of the argument; None means no gradient, as for integers and settings. Keyword-only
    arguments have no entries.

    Each call of the function calls the pullback once, with arrays that have no values yet. What it
    returns is a part of the expression, so it is compiled, divided over workers and differentiated
    like anything else. It can read all variables of the function, and must not assign variables of
    networks or update arrays in place.

    Arguments and values are arrays, or lists, tuples and dictionaries of them; other arguments are
    passed unchanged. A gradient with respect to something that the value depends on, but that is no
    argument, such as a captured variable, is an error. The semantics are those of
    `jax.custom_gradient`; the variables that the pullback reads are what PyTorch's
    `autograd.Function` saves.

    Raises TypeError if the function does not return a pair, or the pullback other entries than one
    for each argument, ShapeError and DTypeError for entries of other shapes and types.
    """
    require_function(f"{_NAME}: needs a function", function)
    bind = _binding(function)

    def called(*args: Any, **kwargs: Any) -> Any:
        positional, settings = bind(args, kwargs)
        leaves, tree = flatten(positional)
        inputs = [_argument(x) if _is_differentiable(x) else x for x in leaves]
        with keeping_expressions():
            value, pullback = _pair(function, function(*unflatten(tree, inputs), **settings))
        values, nesting = result_nodes(_NAME, function, value)
        arguments = [x.node for x in inputs if _is_differentiable(x)]
        if arguments:
            values = _marked(values, nesting, arguments, positional, pullback)
        return unflatten(nesting, [Array(x) for x in values])

    return named(called, _NAME, function)


def _marked(
    values: Sequence[Node],
    nesting: Tree,
    arguments: Sequence[Node],
    positional: Sequence[Any],
    pullback: Pullback,
) -> list[Node]:
    """Return the values of a function as results of a call with the gradient rule `pullback`."""
    cotangents = [placeholder(x.shape, x.dtype) for x in values]
    with collecting_new_nodes() as new_nodes:
        outputs = _trace_pullback(pullback, nesting, cotangents, positional)
    rule = GradientRule(cotangents, (), outputs)
    converted = closure_converted(rule.computed, cotangents, new_nodes)
    rule = rule.with_computed(converted.outputs, cotangents, converted.placeholders)
    call = custom_call(arguments, rule, converted.captured, values).at_line(user_line())
    return [custom_result(call, i) if _has_gradient(x.dtype) else x for i, x in enumerate(values)]


def _trace_pullback(
    pullback: Pullback, nesting: Tree, value_cotangents: Sequence[Node], positional: Sequence[Any]
) -> list[Node | None]:
    """Return the cotangents of the arguments for those of the values.

    The user's gradients by complex arrays are the conjugates of cotangents (see `gradients`).
    """
    with tracing(Scope()) as scope:
        returned = pullback(unflatten(nesting, [Array(_conjugate(x)) for x in value_cotangents]))
        cotangents = [
            None if x is None else _conjugate(x.node) for x in _entries(returned, positional)
        ]
    del returned  # the check counts references
    scope.check_effects(_NAME)
    if scope.assigned:
        names = ", ".join([scope.read[leaf].name for leaf in scope.assigned])
        raise TracingError(
            f"{_NAME}: the pullback assigns {names}, but it is called only while the expression is "
            f"built; assign variables in the function"
        )
    return cotangents


def _entries(returned: Any, positional: Sequence[Any]) -> list[Array | None]:
    """Return the gradients that a pullback returned, one for each array among the arguments that
    has a gradient."""
    entries = (returned,) if len(positional) == 1 else returned
    if not isinstance(entries, (tuple, list)) or len(entries) != len(positional):
        raise TypeError(
            f"{_NAME}: the pullback must return a tuple with one entry for each of the "
            f"{len(positional)} positional arguments, it returned {_described(entries)}; an "
            f"argument without a gradient has the entry None"
        )
    gradients: list[Array | None] = []
    for i, (entry, argument) in enumerate(zip(entries, positional, strict=True)):
        leaves = flatten(argument)[0]
        if not any(map(_is_differentiable, leaves)):
            continue
        gradients += [
            _entry(part, leaf, i)
            for part, leaf in zip(_parts(entry, argument, i), leaves, strict=True)
            if _is_differentiable(leaf)
        ]
    return gradients


def _parts(entry: Any, argument: Any, position: int) -> list[Any]:
    """Return the part of an entry for each leaf of its argument."""
    if argument is None:
        return []
    is_nested = isinstance(argument, (list, tuple, dict))
    keys = _keys(argument) if is_nested else ()
    if is_nested and entry is None:
        entry = dict.fromkeys(keys)
    elif isinstance(entry, (list, tuple, dict)) != is_nested or (
        is_nested and set(_keys(entry)) != set(keys)
    ):
        raise TypeError(
            f"{_NAME}: the entry of the pullback for argument {position} must be nested like it: "
            f"it has {_described(entry)} in place of {_described(argument)}"
        )
    if not is_nested:
        return [entry]
    return [part for key in keys for part in _parts(entry[key], argument[key], position)]


def _keys(value: Any) -> Sequence[Any]:
    return list(value.keys()) if isinstance(value, dict) else range(len(value))


def _described(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, dict):
        return f"a dict of {list(value.keys())}"
    return f"a {kind} of {len(value)}" if isinstance(value, (list, tuple)) else f"one {kind}"


def _entry(value: Any, argument: Array, position: int) -> Array | None:
    """Return a gradient in the type of its argument."""
    if value is None:
        return None
    array = asarray(value) if is_number(value) else as_array(_NAME, value)
    if array.shape != argument.shape:
        raise ShapeError(
            f"{_NAME}: the gradient with respect to an array of shape {argument.shape} in argument "
            f"{position} must have this shape, the pullback returned {array.shape}"
        )
    if array.dtype.kind == "complex" and argument.dtype.kind != "complex":
        raise DTypeError(
            f"{_NAME}: the gradient with respect to a real array in argument {position} must be "
            f"real, the pullback returned {array.dtype}; take mm.real of it"
        )
    return array.astype(argument.dtype)


def _argument(leaf: Array) -> Array:
    """Return an argument as a new node, from which other uses of the same array are told apart."""
    return Array(apply(e.ARGUMENT, leaf.node, line=user_line()))


def _is_differentiable(leaf: Any) -> bool:
    is_array = isinstance(leaf, Array) and not isinstance(leaf, TracedScalar)
    return is_array and _has_gradient(leaf.dtype)


def _has_gradient(dtype: DType) -> bool:
    return dtype.kind in ("float", "complex")


def _conjugate(node: Node) -> Node:
    return e.conj(node) if node.dtype.kind == "complex" else node


def _binding(
    function: Callable[..., Any],
) -> Callable[[Any, Any], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Return a function that divides the arguments of a call into the positional and the
    keyword-only ones, with defaults."""
    try:
        parameters = signature(function)
    except ValueError:  # a function of C that does not tell its parameters
        return lambda args, kwargs: (args, kwargs)

    def bind(args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    return bind


def _pair(function: Callable[..., Any], returned: Any) -> tuple[Any, Pullback]:
    """Return the value and the pullback that a function returned."""
    if isinstance(returned, tuple) and len(returned) == 2:
        value, pullback = returned
        if callable(pullback) and not isinstance(pullback, Array):
            return value, pullback
    name = getattr(function, "__qualname__", repr(function))
    raise TypeError(
        f"{_NAME}: the function must return its value and its pullback, a function from the "
        f"gradient with respect to the value to those with respect to the arguments; {name} "
        f"returned {_described(returned)}"
    )
