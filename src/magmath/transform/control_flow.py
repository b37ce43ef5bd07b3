"""Branches and loops that depend on values: `cond` and `while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import bool_
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Scope
from magmath.errors import DTypeError, OptionError, ShapeError, TracingError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.transform.branches import trace_branch
from magmath.transform.compiled import compile
from magmath.transform.function_argument import require_function, with_own_handles
from magmath.transform.loop_states import checked_states, state_of
from magmath.transform.traced_function import (
    TracedFunction,
    assign_all,
    result_nodes,
    trace_function,
)
from magmath.transform.traced_loop import trace_loop


def cond(
    predicate: Any,
    true_function: Callable[..., Any],
    false_function: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Return `true_function(*operands)` if the predicate is true, else `false_function(*operands)`.

    The predicate is a 0-d truth value. Both functions return arrays with the same nesting, shapes
    and types, or None. If the predicate is a Python truth value, only the chosen function is
    called. Otherwise both functions are called once: where the predicate is computed already, the
    other one for the shapes and types of its results only. Within a compiled function or another
    transformation both are computed and the results are selected. The results, gradients, errors of
    values, such as an index out of range, and assignments are those of the chosen function in every
    case: a variable that only the other function assigns keeps its value. Where both functions are
    called, errors of shapes and types, and those of Python, are raised from either, and both draw
    from the generators of `mm.random`; a generator that a module stores, as `Dropout(seed=1)` does,
    is a variable, which advances in the chosen function alone.

    Raises DTypeError or ShapeError for a predicate other than a 0-d truth value; ShapeError,
    DTypeError or OptionError if the results differ in shape, type or structure. Name and semantics
    are JAX's.
    """
    for function in (true_function, false_function):
        require_function("cond: needs functions", function)
    _check_predicate("cond", predicate)
    functions = true_function, false_function
    if not isinstance(predicate, Array):
        return (true_function if bool(predicate) else false_function)(*with_own_handles(operands))
    if tracing.current() is None:
        return _call_chosen(bool(predicate), functions, operands)
    leaves, tree = flatten(operands)
    nodes = [leaf.node if type(leaf) is Array else leaf for leaf in leaves]
    choice = predicate.node
    predicates = choice, e.call("logical_not", choice)
    first, second = [
        trace_branch(branch_predicate, function, tree, nodes)
        for branch_predicate, function in zip(predicates, functions, strict=True)
    ]
    _check_alike(first.results, first.tree, second.results, second.tree)
    selected = [
        Array(_selected(choice, x, y)) for x, y in zip(first.results, second.results, strict=True)
    ]
    variables = dict.fromkeys([*first.assigned, *second.assigned])
    assign_all({v: _selected(choice, _next(v, first), _next(v, second)) for v in variables})
    return first.unflattened(selected)


def _call_chosen(
    choice: bool, functions: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    """Call the chosen function, and trace the other one to compare their results.

    In this order, as in a compiled function: the random numbers of the false branch follow those of
    the true one.
    """
    outcomes: list[tuple[list[Node], Tree] | None] = []
    result: Any = None
    for is_true_branch, function in zip((True, False), functions, strict=True):
        if is_true_branch is choice:
            nodes, tree = result_nodes("cond", function, function(*with_own_handles(operands)))
            result = unflatten(tree, [Array(node) for node in nodes])
            outcomes.append((nodes, tree))
        else:
            outcomes.append(_shapes_only(function, operands))
    if outcomes[0] is not None and outcomes[1] is not None:
        _check_alike(*outcomes[0], *outcomes[1])
    return result


def _shapes_only(
    function: Callable[..., Any], operands: Sequence[Any]
) -> tuple[list[Node], Tree] | None:
    """Return the results of a function without their values.

    None if it cannot be traced: it reads values, contains a `while_loop`, or updates arrays from
    outside. Within a compiled function these raise.
    """
    leaves, tree = flatten(operands)
    nodes = [leaf.node if type(leaf) is Array else leaf for leaf in leaves]
    try:
        traced = trace_function("cond", function, tree, nodes, Scope(is_branch=True))
    except TracingError:
        return None
    return list(traced.results), traced.tree


def _next(variable: Variable, branch: TracedFunction) -> Node:
    """Return the value of a variable after a branch."""
    return branch.assigned.get(variable, variable.node)


def _selected(choice: Node, x: Node, y: Node) -> Node:
    return x if x is y else e.where(choice, x, y)


def _check_predicate(name: str, predicate: Any) -> None:
    if isinstance(predicate, (bool, np.bool_)):
        return
    if not isinstance(predicate, (Array, np.ndarray)):
        raise TypeError(
            f"{name}: the predicate is a truth value, was given {predicate!r}; compare something, "
            f"as x > 0"
        )
    if predicate.dtype != bool_:
        raise DTypeError(
            f"{name}: the predicate must be a truth value, was given an array of "
            f"{predicate.dtype}; compare it, as x > 0 or x != 0"
        )
    if predicate.shape != ():
        raise ShapeError(
            f"{name}: the predicate must be 0-d, was given shape {predicate.shape}; reduce it with "
            f"mm.any or mm.all, or choose by element with mm.where"
        )


def _check_alike(
    first: Sequence[Node], first_tree: Tree, second: Sequence[Node], second_tree: Tree
) -> None:
    if first_tree != second_tree:
        raise OptionError(
            f"cond: both functions must return arrays nested alike; they return "
            f"{len(first)} and {len(second)} arrays, or nest them differently; let both return the "
            f"same lists, tuples and dictionaries"
        )
    for x, y in zip(first, second, strict=True):
        if x.shape != y.shape or x.dtype is not y.dtype:
            raise (ShapeError if x.shape != y.shape else DTypeError)(
                f"cond: both functions must return the same shapes and types; one returns "
                f"{x.shape} {x.dtype}, the other {y.shape} {y.dtype}; convert one of them"
            )


def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], value: Any) -> Any:
    """Return the `value` after `while cond(value): value = body(value)`.

    `value` is an array, or lists, tuples and dictionaries of arrays, whose shapes and types every
    step keeps; `cond` returns a 0-d truth value. A step is compiled and runs on the workers, and
    the controller reads the truth value after each. A compiled function that contains the loop is
    divided into programs at it. While `cond` returns a Python truth value, it and `body` are called
    for each step. Gradients of results, also of such a function, go through all steps, up to 20,000
    operations in total.

    In a compiled function it can be part of a `vmap`, where a step is taken while it is needed for
    any example, but not of a gradient that is computed there, of `fori_loop`, `scan` and `remat`,
    nor of a branch of `cond`. Raises TracingError there, unless the condition is a Python truth
    value, and for a condition that is an array at first and a Python value later; ShapeError,
    DTypeError or OptionError if the body returns other shapes, types or another
    structure. Name and semantics are JAX's.
    """
    for function in (cond, body):
        require_function("while_loop: needs functions of the value", function)
    leaves, tree = flatten(value)
    states = [state_of(leaf) for leaf in leaves]
    states, predicate = _after_python_steps(cond, body, states, tree)
    if not isinstance(predicate, Array):
        return unflatten(tree, states)
    trace = tracing.current()
    if trace is None:
        return _run_steps(cond, body, predicate, states, tree)
    if trace.can_loop:
        return trace_loop(
            lambda value: _condition_array(cond, value).node, body, predicate.node, states, tree
        )
    raise TracingError(
        "while_loop: the number of steps depends on values, which do not exist while a function is "
        "traced. A function that mm.compile traces can contain such a loop, also in mm.vmap, but "
        "not in a branch of mm.cond, in mm.fori_loop, mm.scan or mm.remat, or in a gradient; there "
        "use mm.fori_loop or mm.scan with a fixed number of steps, and mm.where"
    )


def _checked_condition(cond: Callable[[Any], Any], value: Any) -> Any:
    """Return the condition of a loop: a 0-d array, or a Python truth value."""
    predicate = cond(value)
    _check_predicate("while_loop", predicate)
    return predicate


def _condition_array(cond: Callable[[Any], Any], value: Any) -> Array:
    """Return the condition of a loop in a step that is traced once, for all that follow."""
    predicate = _checked_condition(cond, value)
    if isinstance(predicate, Array):
        return predicate
    raise TracingError(
        f"while_loop: the condition returned an array before, and the Python truth value "
        f"{predicate} for a step that is traced once, for all that follow; let it return either in "
        f"every call"
    )


def _after_python_steps(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], states: list[Array], tree: Tree
) -> tuple[list[Array], Any]:
    """Take steps one by one, as Python does, while the condition is a true Python value; return the
    states and the condition after them."""
    current = states
    while True:
        value = unflatten(tree, current)
        predicate = _checked_condition(cond, value)
        if isinstance(predicate, Array) or not predicate:
            return current, predicate
        nodes = checked_states("while_loop", body(value), tree, states)
        current = [Array(node) for node in nodes]


def _run_steps(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    predicate: Array,
    states: list[Array],
    tree: Tree,
) -> Any:
    """Run steps, which are compiled; return the value after the loop."""

    def step(*values: Array) -> tuple[list[Array], Array]:
        nodes = checked_states("while_loop", body(unflatten(tree, list(values))), tree, states)
        arrays = [Array(node) for node in nodes]
        return arrays, _condition_array(cond, unflatten(tree, arrays))

    step.__qualname__ = "a step of while_loop"  # in messages
    compiled = compile(step)
    current, goes_on = states, predicate
    while goes_on:
        current, goes_on = compiled(*current)
    return unflatten(tree, current)
