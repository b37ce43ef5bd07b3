"""Gradients of expressions, of functions of arrays, and of functions of variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any, TypeAlias, overload

import numpy as np

from magmath.api.creation import asarray
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variables.gradient_map import GradientMap
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_list import is_module, remedy_for
from magmath.autodiff import gradients
from magmath.core.integers import is_integer
from magmath.engine import session
from magmath.engine.lifetimes.kept_expressions import (
    is_keeping_expressions,
    keeping_expressions,
)
from magmath.engine.traces import tracing
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import Node, apply
from magmath.ops import elementwise as e
from magmath.ops.gradient_results import GRADIENT
from magmath.ops.leaves import INPUT
from magmath.transform.function_argument import named, require_function

Argnums: TypeAlias = int | Sequence[int]
Variables: TypeAlias = Variable | Iterable[Variable] | Mapping[Any, Variable]


@overload
def grad(y: Array, xs: Array, *, create_graph: bool | None = None) -> Array: ...
@overload
def grad(y: Array, xs: Sequence[Array], *, create_graph: bool | None = None) -> list[Array]: ...
@overload
def grad(
    y: Callable[..., Any],
    xs: Argnums | None = None,
    *,
    argnums: Argnums = 0,
    has_aux: bool = False,
) -> Callable[..., Any]: ...
@overload
def grad(y: Callable[..., Any], xs: Variables, *, has_aux: bool = False) -> GradientMap: ...
def grad(
    y: Any,
    xs: Any = None,
    *,
    argnums: Argnums = 0,
    has_aux: bool = False,
    create_graph: bool | None = None,
) -> Any:
    """Return the gradient of a 0-d array, or of a function that returns one.

    Of an array: `mm.grad(y, x)` is the gradient of y with respect to an array, or to each of
    several, then a list; each has the shape and type of its array. It is an expression like any
    other: it can be combined, compiled and differentiated again. Arrays that y does not depend on
    have gradient zero. The gradient with respect to a variable includes all values of it that y has
    read. The gradient by a complex array is that of the real parts plus i times that of the
    imaginary parts, as in PyTorch. Evaluated arrays can be differentiated as long as their operands
    exist.

    In a later gradient, the result counts as a constant, as in PyTorch: parameters that were
    updated with it do not depend on what it was computed from. It is differentiated only if the
    later result depends on the source through it alone, as for second derivatives.
    `create_graph=True` has it differentiated always, for example for a penalty on a gradient,
    `create_graph=False` never. Gradients within a function that is differentiated itself are always
    differentiated.

    Raises GradientError if operands of an evaluated array no longer exist, and if y depends on the
    operands of xs but not on xs: each `x[0]` in the source is a new array. Raises ShapeError if y
    is not 0-d, DTypeError if y is not real floating point or xs are integers.

    Of a function: `mm.grad(f, argnums=0, has_aux=False)` is the function that takes the arguments
    of f and returns the gradient of its result, and `mm.grad(f, variables)` calls f and returns
    {variable: gradient}; see `value_and_grad`.
    """
    if callable(y) and not isinstance(y, Array):
        if xs is not None and not _are_positions(xs):
            return _without_value(_by_variables("grad", y, xs, has_aux), has_aux)
        return gradient_function("grad", y, argnums if xs is None else xs, has_aux)
    if xs is None:
        raise TypeError(
            "grad: needs the arrays to differentiate by: mm.grad(y, x), or a list of them; or a "
            "function: mm.grad(f)(x)"
        )
    several = isinstance(xs, Iterable) and not isinstance(xs, (Array, np.ndarray))
    sources: list[Array] = list(xs) if several else [xs]
    for array in (y, *sources):
        if not isinstance(array, Array):
            raise _array_error(xs if is_module(xs) or isinstance(xs, Mapping) else array)
    nodes = [x.leaf if isinstance(x, Variable) else x.node for x in sources]
    results = _eager_gradients(y, nodes, create_graph, check_independence=True)
    if results is None:
        derivatives = gradients(y.node, nodes)
        if y.is_computed:
            y.keep_leaves(derivatives)
        results = [Array(_result(node, create_graph)) for node in derivatives]
        _register_gradients(results, y)
    return results[0] if isinstance(xs, Array) else results


def _array_error(value: Any) -> TypeError:
    remedy = (
        "compute the result from the array object by which you differentiate: x = mm.asarray(x)"
    )
    is_explained = is_module(value) or isinstance(value, (Mapping, str))
    if is_explained or hasattr(type(value), "describe_missing"):
        remedy = remedy_for(value)
    return TypeError(f"grad: needs magmath arrays, was given {type(value).__name__}; {remedy}")


@overload
def value_and_grad(
    function: Callable[..., Any], *, argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]: ...
@overload
def value_and_grad(
    function: Callable[..., Any], variables: Argnums, *, has_aux: bool = False
) -> Callable[..., Any]: ...
@overload
def value_and_grad(
    function: Callable[..., Any], variables: Variables, *, has_aux: bool = False
) -> tuple[Any, GradientMap]: ...
def value_and_grad(
    function: Callable[..., Any],
    variables: Any = None,
    *,
    argnums: Argnums = 0,
    has_aux: bool = False,
) -> Any:
    """Return the value and the gradient of a function that returns a 0-d array.

    With respect to arguments: `mm.value_and_grad(f, argnums=0)` returns a function that takes the
    arguments of f and returns `(value, gradient)`. `argnums` is the position of an argument, or a
    tuple of positions, for which the gradient is a tuple. These arguments are arrays, Python
    floats, or lists, tuples and dictionaries of them; the gradient has the same nesting, shapes and
    types. Everything else that f reads counts as a constant.

    With respect to variables: `mm.value_and_grad(f, variables)`, with variables in a list, a tuple
    or the values of a dictionary, calls `f()` and returns `(value, {variable: gradient})`, the
    argument of `optimizer.update`; in loops write `gradients.items()` or `gradients.values()`. f
    may assign variables and draw random numbers. Without variables, as those of a module whose
    parameters are all frozen, the dictionary is empty.

    With `has_aux`, f returns `(value, auxiliary)`, and this pair replaces the value in the result;
    the gradient is that of the value alone. Name and semantics are JAX's.

    f runs as ordinary Python code, also within a compiled function. Raises TypeError if f or its
    result has another type, ShapeError if the result is not 0-d, DTypeError if the result or a
    variable is not real floating point, or an argument no floating point.
    """
    require_function("value_and_grad: needs a function", function)
    if variables is not None and not _are_positions(variables):
        return _by_variables("value_and_grad", function, variables, has_aux)
    by: Argnums = argnums if variables is None else variables
    transformed = _by_arguments("value_and_grad", function, by, has_aux)
    return named(transformed, "value_and_grad", function)


def _register_gradients(gradients: Sequence[Array], value: Array) -> None:
    """Register gradients and the value, which one program should compute, unless they are parts of
    a trace or of a function that is differentiated itself. A trace is marked as training."""
    trace = tracing.current()
    if trace is not None:
        trace.mark_training()
    elif not is_keeping_expressions():
        session.engine().evaluator.add_gradients(gradients, value)


def gradient_function(
    operation: str, function: Callable[..., Any], by: Argnums, has_aux: bool = False
) -> Callable[..., Any]:
    """Return the function of the arguments that returns the gradient by some of them; `operation`
    names the caller in errors."""
    transformed = _by_arguments(operation, function, by, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        return _without_value(transformed(*args, **kwargs), has_aux)

    return named(gradient, operation, function)


def _without_value(pair: tuple[Any, Any], has_aux: bool) -> Any:
    """Return the gradient of a result of `value_and_grad`, and the auxiliary part if any."""
    value, gradient = pair
    return (gradient, value[1]) if has_aux else gradient


def _by_arguments(
    operation: str, function: Callable[..., Any], by: Argnums, has_aux: bool
) -> Callable[..., tuple[Any, Any]]:
    """Return the function of the arguments that returns the value and the gradient."""

    def transformed(*args: Any, **kwargs: Any) -> Any:
        arguments, leaves = list(args), []
        chosen = argument_positions(operation, by, len(args))
        trees = []
        for i in dict.fromkeys(chosen):
            values, tree = flatten(args[i])
            arrays = [argument(operation, value, i) for value in values]
            arguments[i] = unflatten(tree, arrays)
            trees.append((i, tree, len(arrays)))
            leaves += [array.node for array in arrays]
            del arrays
        with keeping_expressions():
            result, value = _call(operation, function, arguments, kwargs, has_aux)
            del arguments
            derivatives = _eager_gradients(value, leaves, None, check_independence=False)
            if derivatives is None:
                nodes = gradients(value.node, leaves, check_independence=False)
                derivatives = [Array(node) for node in nodes]
                _register_gradients(derivatives, value)
        by_position: dict[int, Any] = {}
        for i, tree, count in trees:
            by_position[i], derivatives = unflatten(tree, derivatives[:count]), derivatives[count:]
        gradient = tuple([by_position[i] for i in chosen])
        return result, gradient if isinstance(by, Iterable) else gradient[0]

    return transformed


def _eager_gradients(
    y: Array,
    sources: Sequence[Node],
    create_graph: bool | None,
    *,
    check_independence: bool,
) -> list[Array] | None:
    """Return the gradients of an array that was computed eagerly, by others of this kind; None if
    a program computes them."""
    if not sources or session.eager_computation() is None or create_graph is False:
        return None
    if y.shape or not y.dtype.is_floating:
        return None
    output, leaves = y.stored_leaf(), [x.leaf_or_self for x in sources]
    if output is None or any(x.operation is not INPUT for x in leaves):
        return None
    is_marked = create_graph is None and not is_keeping_expressions()
    computed = session.engine().eager_gradients.compute(
        output, leaves, GRADIENT if is_marked else None, user_line(),
        check_independence=check_independence,
    )  # fmt: skip
    if computed is None:
        return None
    y.keep_leaves(computed.operands)
    return [Array(leaf) for leaf in computed.gradients]


def _result(gradient: Node, create_graph: bool | None) -> Node:
    """Return a gradient as `create_graph` of `grad` describes it."""
    if create_graph or (create_graph is None and is_keeping_expressions()):
        return gradient
    if create_graph is None:
        return apply(GRADIENT, gradient, line=user_line())
    return apply(e.STOP_GRADIENT, gradient, line=user_line())


def _by_variables(
    operation: str, function: Callable[..., Any], variables: Variables, has_aux: bool
) -> tuple[Any, GradientMap]:
    if isinstance(variables, Variable):
        variables = [variables]
    if not isinstance(variables, Iterable) or isinstance(variables, (Array, np.ndarray)):
        raise _variables_error(operation, variables)
    if is_module(variables):
        raise _variables_error(operation, variables)
    chosen = list(variables.values() if isinstance(variables, Mapping) else variables)
    for v in chosen:
        if not isinstance(v, Variable):
            raise _variables_error(operation, v, len(chosen))
        if not (v.dtype.is_floating or v.dtype.kind == "complex"):
            raise DTypeError(
                f"{operation}: variable {v.name} is {v.dtype}; a gradient needs floating point "
                f"numbers: leave it out"
            )
    with keeping_expressions():
        try:
            result, value = _call(operation, function, (), {}, has_aux)
        except TypeError as error:
            _explain_missing_arguments(error, operation, function)
            raise
        nodes = gradients(value.node, [v.leaf for v in chosen])
    derivatives = GradientMap(zip(chosen, map(Array, nodes), strict=True))
    _register_gradients(list(derivatives.values()), value)
    return result, derivatives


def _explain_missing_arguments(
    error: TypeError, operation: str, function: Callable[..., Any]
) -> None:
    """Add the remedy to Python's error about a function of arguments that is given variables."""
    name = getattr(function, "__qualname__", "")
    if str(error).startswith(f"{name}() missing "):
        error.args = (
            f"{operation}: with variables the function is called without arguments, but {error}; "
            f"let it read the variables, or write mm.{operation}(f)(x) for arguments",
        )


def _variables_error(operation: str, value: Any, count: int = 1) -> TypeError:
    """Return the error about an object among `count` in place of variables of a function."""
    remedy = remedy_for(value)
    if isinstance(value, (Array, np.ndarray)):
        remedy = f"for the gradient by an argument write mm.{operation}(f)(x)"
        if count > 1:
            positions = tuple(range(count))
            remedy = (
                f"for gradients by arguments write mm.{operation}(f, argnums={positions})(x, y, …)"
            )
    return TypeError(
        f"{operation}: needs variables (mm.variable), or positions of arguments, was given "
        f"{type(value).__name__}; {remedy}"
    )


def _call(
    operation: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    has_aux: bool,
) -> tuple[Any, Array]:
    """Call a function; return its result, and the value without the auxiliary part."""
    result = function(*args, **kwargs)
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise TypeError(
            f"{operation}: with has_aux the function returns (value, auxiliary), it returned "
            f"{type(result).__name__}"
        )
    value = result[0] if has_aux else result
    if not isinstance(value, Array):
        hint = "; compute it from the arguments with functions of mm, and return the array"
        if isinstance(value, tuple):
            hint = "; for (value, auxiliary) give has_aux=True"
        raise TypeError(
            f"{operation}: the function must return a 0-d array, it returned "
            f"{type(value).__name__}{hint}"
        )
    if value.shape != ():
        raise ShapeError(
            f"{operation}: the function must return a 0-d array, it returned shape "
            f"{value.shape}; sum it, or take its mean"
        )
    return result, value


def argument(name: str, value: Any, position: int, *, is_real: bool = False) -> Array:
    """Return an argument as a new node, so that other uses of the same array are constants.

    Raises DTypeError, on behalf of the transformation `name`, for types other than floats, and with
    `is_real` for complex ones.
    """
    if isinstance(value, TracedScalar):
        value = value.converted()
    array = asarray(value) if is_number(value) else as_array(name, value)
    if not (array.dtype.is_floating or (array.dtype.kind == "complex" and not is_real)):
        remedy = "convert it with mm.astype(x, mm.float32)"
        if array.dtype.kind == "complex":
            remedy = "differentiate by the real and imaginary parts"
        elif not is_real:
            remedy += ", or name other arguments by argnums"
        raise DTypeError(
            f"{name}: argument {position} has an array of type {array.dtype}; a gradient "
            f"needs {'real ' * is_real}floating point; {remedy}"
        )
    node = apply(e.ARGUMENT, array.node, line=user_line())
    return Array(session.argument_leaf(node) or node)


def _are_positions(value: Any) -> bool:
    """Return True for the position of an argument, and for a sequence of such."""
    if isinstance(value, Sequence) and value:
        return all(map(_is_position, value))
    return _is_position(value)


def _is_position(value: Any) -> bool:
    return is_integer(value) and not isinstance(value, (Array, bool))


def argument_positions(operation: str, argnums: Argnums, count: int) -> list[int]:
    """Return the positions that `argnums` names among `count` positional arguments, from 0.

    Raises OptionError for one beyond them.
    """
    sequence = argnums if isinstance(argnums, Iterable) else [argnums]
    positions = [index(argnum) for argnum in sequence]
    for position in positions:
        if not -count <= position < count:
            raise OptionError(
                f"{operation}: argnums names argument {position}, but the function was called with "
                f"{count} positional arguments; pass the argument by position"
            )
    return [position % count for position in positions]
