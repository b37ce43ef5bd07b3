"""Loops that run on the workers, `fori_loop` and `scan`: the body is one program, whose steps run
without the controller."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import index
from typing import Any

import numpy as np

from magmath.api.creation import asarray, zeros
from magmath.api.manipulation import stack
from magmath.arrays.array import Array, as_array
from magmath.arrays.lazy_array import evaluate
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import flatten, unflatten
from magmath.core.dtypes import int64
from magmath.core.integers import require_integer
from magmath.engine import tracing
from magmath.engine.retained_expressions import keep_expression
from magmath.engine.tracing import Trace
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.transform.function_argument import require_function
from magmath.transform.loop_program import row_of, run_loop
from magmath.transform.traced_function import placeholder


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], value: Any) -> Any:
    """Return the `value` after `for i in range(lower, upper): value = body(i, value)`.

    `value` is an array, or lists, tuples and dictionaries of arrays, or None for a body that only
    assigns variables; `body` is traced once and must keep structure, shapes and types. The steps
    run as one program, in place, on the workers: one message for all of them, and native code if
    there are many. `i` counts as a Python number. Within a compiled function or another
    transformation the loop is unrolled. Gradients of the result unroll the loop too, up to 20,000
    operations in total.

    Raises ShapeError, DTypeError or MagmathError if the body changes shapes, types or structure.
    Name and semantics are JAX's.
    """
    require_function("fori_loop: the body is a function of (i, value)", body)
    for bound in (lower, upper):
        if not hasattr(bound, "__index__"):
            raise TypeError(
                f"fori_loop: the bounds are integers, was given {bound!r}; convert it with int()"
            )
    lower, upper = index(lower), index(upper)
    leaves, tree = flatten(value)
    states = [state_of(leaf) for leaf in leaves]
    if tracing.current() is not None:
        value = unflatten(tree, states)
        for i in range(lower, upper):
            value = body(i, value)
        return value
    if upper <= lower:
        return unflatten(tree, states)

    def step(values: Sequence[Array], i: Node) -> tuple[list[Node], list[Node]]:
        returned = body(TracedScalar(i, 0), unflatten(tree, values))
        return checked_states("fori_loop", returned, tree, states), []

    found, _ = run_loop("fori_loop", states, lower, upper - lower, step)
    return unflatten(tree, found)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Apply a function to the rows of `xs` in order; return the last carry and the stacked results.

        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, mm.stack(ys)

    `init`, `xs` and the results of f are arrays, or lists, tuples and dictionaries of arrays; all
    arrays of `xs` have the same number of rows. Without `xs`, f is called with None, `length`
    times. With `reverse` the last row comes first. The carry keeps its shapes and types; y may be
    None. f is traced once, and the steps run as one program on the workers; within a compiled
    function or another transformation the loop is unrolled. Gradients of the results unroll the
    loop too, up to 20,000 operations in total.

    Raises ShapeError, DTypeError or MagmathError if f changes shapes, types or structure of the
    carry, or if the numbers of rows differ. Name and semantics are JAX's.
    """
    require_function("scan: needs a function of (carry, x)", f)
    rows, rows_tree = flatten(xs)
    rows = [state_of(x) for x in rows]
    steps = _steps(rows, xs, length)
    leaves, tree = flatten(init)
    states = [state_of(leaf) for leaf in leaves]

    def part(pick: Callable[[Array], Array]) -> Any:
        return unflatten(rows_tree, [pick(x) for x in rows])

    def applied(carry: Any, x: Any) -> tuple[list[Node], list[Node], Hashable]:
        returned = f(carry, x)
        if not (isinstance(returned, tuple) and len(returned) == 2):
            raise MagmathError(
                f"scan: the function must return (carry, y), it returned {type(returned).__name__}"
            )
        carry, y = returned
        collected, own = flatten(y)
        results = [as_array("scan", v).node for v in collected]
        return checked_states("scan", carry, tree, states), results, own

    if tracing.current() is not None and steps:
        return _unrolled(applied, part, unflatten(tree, states), tree, steps, reverse)
    if not steps:
        return unflatten(tree, states), _no_rows(applied, rows, rows_tree, states, tree)
    returned_trees: list[Any] = []
    nodes = {id(row): row.node for row in rows}  # as expressions, for gradients
    for node in nodes.values():
        keep_expression(node)
    evaluate(*rows)

    def step(values: Sequence[Array], i: Node) -> tuple[list[Node], list[Node]]:
        number = e.subtract(constant(steps - 1, int64), i) if reverse else i
        x = part(lambda row: Array(row_of(nodes[id(row)], number)))
        following, collected, own = applied(unflatten(tree, values), x)
        returned_trees.append(own)
        return following, collected

    found, ys = run_loop("scan", states, 0, steps, step, reverse=reverse)
    return unflatten(tree, found), unflatten(returned_trees[0], ys)


def _steps(rows: Sequence[Array], xs: Any, length: int | None) -> int:
    if length is not None:
        length = require_integer("scan: length", length, 0)
    counts = {}
    for x in rows:
        if not x.ndim:
            raise ShapeError(
                "scan: the arrays of xs need a first axis, which numbers the steps, was given a "
                "0-d array; let the function read it from outside"
            )
        counts[x.shape[0]] = x.shape
    if length is not None:
        counts.setdefault(length, (length,))
    if not counts:
        raise MagmathError("scan: needs xs, or the number of steps: length=…")
    if len(counts) > 1:
        raise ShapeError(
            f"scan: xs and length must agree on the number of steps, was given shapes "
            f"{', '.join(map(str, counts.values()))}" + (f", length {length}" if length else "")
        )
    return next(iter(counts))


def _unrolled(
    applied: Callable[..., Any],
    part: Callable[..., Any],
    carry: Any,
    tree: Hashable,
    steps: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """Unroll the loop within a traced function; return the last carry and the stacked results."""
    ys: list[list[Node]] = []
    for i in range(steps)[::-1] if reverse else range(steps):
        following, collected, own = applied(carry, part(lambda x, i=i: x[i]))
        carry = unflatten(tree, [Array(node) for node in following])
        ys.append(collected)
    columns = zip(*(ys[::-1] if reverse else ys), strict=True)
    return carry, unflatten(own, [stack([Array(y) for y in column]) for column in columns])


def _no_rows(
    applied: Callable[..., Any],
    rows: Sequence[Array],
    rows_tree: Hashable,
    states: Sequence[Array],
    tree: Hashable,
) -> Any:
    """Return the stacked results of zero steps; a trace determines their shapes."""
    with tracing.tracing(Trace()):
        carry = unflatten(tree, [Array(placeholder(s.shape, s.dtype)) for s in states])
        examples = [Array(placeholder(x.shape[1:], x.dtype)) for x in rows]
        _, collected, own = applied(carry, unflatten(rows_tree, examples))
    return unflatten(own, [zeros((0, *y.shape), dtype=y.dtype) for y in collected])


def state_of(value: Any) -> Array:
    """Return the initial value of a loop as an array with a new handle."""
    if isinstance(value, TracedScalar):
        return value.converted()
    return Array(value.node) if isinstance(value, Array) else asarray(value)


def checked_states(name: str, returned: Any, tree: Hashable, states: Sequence[Array]) -> list[Node]:
    """Return the nodes of the arrays that the body of a loop returned.

    Raises MagmathError, ShapeError or DTypeError if their structure, shapes or types are not those
    of the states.
    """
    leaves, returned_tree = flatten(returned)
    if returned_tree != tree:
        raise MagmathError(
            f"{name}: the body must return the structure of arrays that it receives; it returned "
            f"{_structure(returned, len(leaves))}, for {_counted(len(states))}"
        )
    arrays = [_next_state(name, leaf, state) for leaf, state in zip(leaves, states, strict=True)]
    for array, state in zip(arrays, states, strict=True):
        if array.shape != state.shape or array.dtype != state.dtype:
            raise (ShapeError if array.shape != state.shape else DTypeError)(
                f"{name}: the body was given {state.shape} {state.dtype} and returned "
                f"{array.shape} {array.dtype}; every step must return the same shape and type"
            )
    return [array.node for array in arrays]


def _structure(returned: Any, count: int) -> str:
    return "None" if returned is None else f"{type(returned).__name__} of {_counted(count)}"


def _counted(count: int) -> str:
    return f"{count} array{'' if count == 1 else 's'}"


def _next_state(name: str, value: Any, state: Array) -> Array:
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return asarray(value, dtype=state.dtype)
    return as_array(name, value)
