"""Branches and loops that depend on values: `cond` and `while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.tree import flatten, unflatten
from magmath.arrays.variable import Variable
from magmath.core.dtypes import bool_
from magmath.engine import tracing
from magmath.errors import DTypeError, MagmathError, ShapeError, TracingError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.transform.compiled import compile
from magmath.transform.loops import checked_states, state_of
from magmath.transform.traced_function import TracedFunction, assign_all, trace_function


def cond(
    predicate: Any,
    true_function: Callable[..., Any],
    false_function: Callable[..., Any],
    *operands: Any,
) -> Any:
    """Return `true_function(*operands)` if the predicate is true, else `false_function(*operands)`.

    The predicate is a 0-d truth value. Both functions return arrays with the same nesting, shapes
    and types, or None. If the value of the predicate is known, only the chosen function is called.
    Within a compiled function or another transformation both functions are computed and the results
    are selected. The other function's results and assignments have no effect (a variable that only
    the other function assigns keeps its value), but both functions draw their random numbers, and
    an error in either is raised. As with `mm.where`, the gradient may be nan if that of the other
    function is.

    Raises DTypeError or ShapeError for a predicate other than a 0-d truth value; ShapeError,
    DTypeError or MagmathError if the results differ in shape, type or structure. Name and semantics
    are JAX's.
    """
    for function in (true_function, false_function):
        if not callable(function):
            raise TypeError(f"cond: needs functions, was given {function!r}")
    _check_predicate("cond", predicate)
    if tracing.current() is None or not isinstance(predicate, Array):
        return (true_function if bool(predicate) else false_function)(*operands)
    leaves, tree = flatten(operands)
    nodes = [leaf.node if type(leaf) is Array else leaf for leaf in leaves]
    first, second = [
        trace_function("cond", function, tree, nodes)
        for function in (true_function, false_function)
    ]
    _check_alike(first, second)
    choice = predicate.node
    found = [
        Array(_selected(choice, x, y)) for x, y in zip(first.results, second.results, strict=True)
    ]
    variables = dict.fromkeys([*first.assigned, *second.assigned])
    assign_all({v: _selected(choice, _next(v, first), _next(v, second)) for v in variables})
    return first.unflattened(found)


def _next(variable: Variable, branch: TracedFunction) -> Node:
    """Return the value of a variable after a branch."""
    return branch.assigned.get(variable, variable.node)


def _selected(choice: Node, x: Node, y: Node) -> Node:
    return x if x is y else e.where(choice, x, y)


def _check_predicate(name: str, predicate: Any) -> None:
    if isinstance(predicate, (bool, np.bool_)):
        return
    if not isinstance(predicate, (Array, np.ndarray)):
        raise TypeError(f"{name}: the predicate is a truth value, was given {predicate!r}")
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


def _check_alike(first: TracedFunction, second: TracedFunction) -> None:
    if first.tree != second.tree:
        raise MagmathError(
            f"cond: both functions must return arrays nested alike; they return "
            f"{len(first.results)} and {len(second.results)} arrays, or nest them differently"
        )
    for x, y in zip(first.results, second.results, strict=True):
        if x.shape != y.shape or x.dtype is not y.dtype:
            raise (ShapeError if x.shape != y.shape else DTypeError)(
                f"cond: both functions must return the same shapes and types; one returns "
                f"{x.shape} {x.dtype}, the other {y.shape} {y.dtype}"
            )


def while_loop(cond: Callable[[Any], Any], body: Callable[[Any], Any], value: Any) -> Any:
    """Return the `value` after `while cond(value): value = body(value)`.

    `value` is an array, or lists, tuples and dictionaries of arrays, whose shapes and types every
    step keeps; `cond` returns a 0-d truth value. A step is compiled and runs on the workers, and
    the controller reads the truth value after each. Gradients go through all steps.

    The number of steps depends on values, so in a compiled function or another transformation this
    raises TracingError, unless the condition is a Python truth value there; call it outside, or use
    `fori_loop` or `scan` with a fixed number of steps. Raises ShapeError, DTypeError or
    MagmathError if the body returns other shapes, types or another structure. Name and semantics
    are JAX's.
    """
    for function in (cond, body):
        if not callable(function):
            raise TypeError(f"while_loop: needs functions of the value, was given {function!r}")
    leaves, tree = flatten(value)
    states = [state_of(leaf) for leaf in leaves]
    if tracing.current() is not None:
        return _written_out(cond, body, states, tree)

    def holds(*given: Array) -> Array:
        predicate = cond(unflatten(tree, list(given)))
        _check_predicate("while_loop", predicate)
        return (
            predicate if isinstance(predicate, Array) else Array(constant(bool(predicate), bool_))
        )

    @compile
    def step(*given: Array) -> tuple[list[Array], Array]:
        nodes = checked_states("while_loop", body(unflatten(tree, list(given))), tree, states)
        arrays = [Array(node) for node in nodes]
        return arrays, holds(*arrays)

    goes_on = holds(*states)
    while goes_on:
        states, goes_on = step(*states)
    return unflatten(tree, states)


def _written_out(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    states: Sequence[Array],
    tree: Hashable,
) -> Any:
    """Trace the steps one by one while the condition is a Python truth value; return the value."""
    current = list(states)
    while True:
        predicate = cond(unflatten(tree, current))
        _check_predicate("while_loop", predicate)
        if isinstance(predicate, Array):
            raise TracingError(
                "while_loop: the number of steps depends on values, which do not exist while a "
                "function is traced (mm.compile, mm.vmap, mm.scan, …); call while_loop outside of "
                "it, with mm.compile for the surrounding code, or use mm.fori_loop or mm.scan with "
                "a fixed number of steps and mm.where"
            )
        if not predicate:
            return unflatten(tree, current)
        nodes = checked_states("while_loop", body(unflatten(tree, current)), tree, states)
        current = [Array(node) for node in nodes]
