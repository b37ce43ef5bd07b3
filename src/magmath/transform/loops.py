"""Loops that run on the workers, `fori_loop` and `scan`: the body is one program, whose steps run
without the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from magmath.api.creation import zeros
from magmath.api.manipulation import stack
from magmath.arrays.array import Array, as_array
from magmath.arrays.traced_scalar import TracedScalar
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.core.dtypes import int64
from magmath.core.integers import require_integer
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.errors import OptionError, ShapeError
from magmath.graph import Node
from magmath.ops import elementwise as e
from magmath.ops.leaves import constant
from magmath.transform.function_argument import require_function
from magmath.transform.loop_states import checked_states, state_of
from magmath.transform.traced_function import placeholder
from magmath.transform.traced_loop import trace_scan
from magmath.transform.uncompiled_loops import run_loop


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], value: Any) -> Any:
    """Return the `value` after `for i in range(lower, upper): value = body(i, value)`.

    `value` is an array, or lists, tuples and dictionaries of arrays, or None for a body that only
    assigns variables; `body` must keep structure, shapes and types. It is called only while it is
    traced: once, or for each step of a loop that is unrolled. The steps run as one program, in
    place, on the workers: one message for all of them, and native code if there are many. `i` is a
    Python integer, or counts as one. The gradient of a long loop is a loop too. A compiled function
    runs a long loop as a program of its own; short ones, and those within other transformations,
    are unrolled. Gradients of loops that assign variables or draw random numbers unroll them, up to
    20,000 operations in total.

    Raises ShapeError, DTypeError or OptionError if the body changes shapes, types or structure.
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
    if upper <= lower:
        return unflatten(tree, states)

    def step(values: Sequence[Array], rows: Sequence[Array], i: Node) -> tuple[list[Node], Any]:
        number = e.add(i, constant(lower, int64)) if lower else i
        returned = body(TracedScalar(number, 0), unflatten(tree, values))
        return checked_states("fori_loop", returned, tree, states), []

    if tracing.current() is None:
        return unflatten(tree, run_loop("fori_loop", step, states, [], upper - lower).states)
    results = trace_scan("fori_loop", step, states, [], upper - lower)
    if results is not None:
        return unflatten(tree, results.states)
    for i in range(lower, upper):
        returned = body(i, unflatten(tree, states))
        states = [Array(x) for x in checked_states("fori_loop", returned, tree, states)]
    return unflatten(tree, states)


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
    None. The steps run as one program on the workers. Calls of f, gradients of long loops, and
    loops in compiled functions and in other transformations are as for `fori_loop`.

    Raises ShapeError, DTypeError or OptionError if f changes shapes, types or structure of the
    carry, or if the numbers of rows differ. Name and semantics are JAX's.
    """
    require_function("scan: needs a function of (carry, x)", f)
    rows, rows_tree = flatten(xs)
    rows = [state_of(x) for x in rows]
    steps = _steps(rows, xs, length)
    leaves, tree = flatten(init)
    states = [state_of(leaf) for leaf in leaves]

    def applied(carry: Any, x: Any) -> tuple[list[Node], list[Node], Tree]:
        returned: Any = f(carry, x)
        if not (isinstance(returned, tuple) and len(returned) == 2):
            count = f" of {len(returned)}" if isinstance(returned, tuple) else ""
            raise OptionError(
                f"scan: the function must return (carry, y), it returned "
                f"{type(returned).__name__}{count}; return None as y if there is none"
            )
        carry, y = returned
        collected, y_tree = flatten(y)
        results = [as_array("scan", v).node for v in collected]
        return checked_states("scan", carry, tree, states), results, y_tree

    if not steps:
        return unflatten(tree, states), _no_rows(applied, rows, rows_tree, states, tree)
    returned_trees: list[Any] = []

    def step(values: Sequence[Array], read: Sequence[Array], i: Node) -> tuple[list[Node], Any]:
        following, collected, y_tree = applied(unflatten(tree, values), unflatten(rows_tree, read))
        returned_trees.append(y_tree)
        return following, collected

    run = run_loop if tracing.current() is None else trace_scan
    results = run("scan", step, states, rows, steps, reverse=reverse)
    if results is not None:
        return unflatten(tree, results.states), unflatten(returned_trees[0], results.collected)

    def row(i: int) -> Any:
        return unflatten(rows_tree, [x[i] for x in rows])

    return _unroll(applied, row, unflatten(tree, states), tree, steps, reverse)


def _steps(rows: Sequence[Array], xs: Any, length: int | None) -> int:
    if length is not None:
        length = require_integer("scan: length", length, 0)
    shapes = {}
    for x in rows:
        if not x.ndim:
            raise ShapeError(
                "scan: the arrays of xs need a first axis, which numbers the steps, was given a "
                "0-d array; let the function read it from outside"
            )
        shapes[x.shape[0]] = x.shape
    counts = {*shapes, *([] if length is None else [length])}
    if not counts:
        raise OptionError("scan: needs xs, or the number of steps: length=…")
    if len(counts) > 1:
        raise ShapeError(
            f"scan: xs and length must agree on the number of steps, was given shapes "
            f"{', '.join(map(str, shapes.values()))}"
            + ("" if length is None else f", length {length}")
        )
    return counts.pop()


def _unroll(
    applied: Callable[..., Any],
    row: Callable[[int], Any],
    carry: Any,
    tree: Tree,
    steps: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """Unroll the loop within a traced function; return the last carry and the stacked results."""
    ys: list[list[Node]] = []
    for i in range(steps)[::-1] if reverse else range(steps):
        following, collected, y_tree = applied(carry, row(i))
        carry = unflatten(tree, [Array(node) for node in following])
        ys.append(collected)
    columns = zip(*(ys[::-1] if reverse else ys), strict=True)
    return carry, unflatten(y_tree, [stack([Array(y) for y in column]) for column in columns])


def _no_rows(
    applied: Callable[..., Any],
    rows: Sequence[Array],
    rows_tree: Tree,
    states: Sequence[Array],
    tree: Tree,
) -> Any:
    """Return the stacked results of zero steps; a trace determines their shapes, and the arrays
    that it updates have their former values again."""
    with tracing.tracing(Trace()) as trace:
        carry = unflatten(tree, [Array(placeholder(s.shape, s.dtype)) for s in states])
        examples = [Array(placeholder(x.shape[1:], x.dtype)) for x in rows]
        _, collected, y_tree = applied(carry, unflatten(rows_tree, examples))
    trace.undo_updates()
    return unflatten(y_tree, [zeros((0, *y.shape), dtype=y.dtype) for y in collected])
