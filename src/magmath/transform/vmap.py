"""Vectorization: `vmap` turns a function of one example into a function of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any, TypeAlias

import numpy as np

from magmath.api.creation import asarray
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten
from magmath.batching import BatchOperand
from magmath.engine.traces.tracing import Scope
from magmath.errors import OptionError, ShapeError, TracingError
from magmath.graph import Node
from magmath.ops.manipulation import permute
from magmath.transform.function_argument import named, require_function, with_keywords_last
from magmath.transform.traced_function import assign_all, placeholder, trace_function

MappedAxes: TypeAlias = "int | Sequence[Any] | Mapping[Any, Any] | None"


def vmap(
    function: Callable[..., Any], in_axes: MappedAxes = 0, out_axes: MappedAxes = 0
) -> Callable[..., Any]:
    """Return the function that applies `function` to each example of a batch.

    `mm.vmap(f)(xs)` equals `mm.stack([f(x) for x in xs])`, computed by the same operations on
    arrays with one more dimension: f is called once. Its arguments and results are arrays, or
    lists, tuples and dictionaries of them, or None.

    in_axes   for each argument the axis of the examples, or None for an argument that all examples
              share; one value for all arguments, or a tuple with one for each. For an argument that
              is a tree, its entry is an axis for all of its arrays, or a tree like it. Keyword
              arguments are mapped along their first axis
    out_axes  the position of that axis in each result, in the same form; None for a result that is
              the same for all examples

    It can be nested, and combined with `grad`, `compile` and the other transformations. Each
    example has its own random numbers, from the generators that f draws from. f may assign
    variables only values that are the same for all examples, and cannot read values that depend on
    its arguments. Name and semantics are JAX's.

    Raises ShapeError if an array lacks the axis or the numbers of examples differ, OptionError if
    a result without an axis differs between examples, TracingError if the new value of a variable
    does.
    """
    require_function("vmap: needs a function of arrays", function)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, tree = flatten((*args, kwargs))
        axes = _axes_of_arguments(in_axes, args, kwargs)
        operands, examples, size = _examples(leaves, axes, _names(args, kwargs))
        traced = trace_function(
            "vmap", with_keywords_last(function), tree, examples, Scope(can_loop=True)
        )
        results, assigned = traced.batched(operands, size)
        for v, value in assigned.items():
            if value.varies:
                raise TracingError(
                    f"vmap: the function assigns variable {v.name} a value that differs between "
                    f"examples, and a variable has one; return the value, and assign its mean or "
                    f"sum after the call"
                )
        traced.check_reads("vmap")
        assign_all({v: value.node for v, value in assigned.items()})
        result_axes = _axes_of("vmap: out_axes", out_axes, traced.unflattened(results))
        arrays = [_result(x, axis) for x, axis in zip(results, result_axes, strict=True)]
        return traced.unflattened(arrays)

    return named(mapped, "vmap", function)


def _axes_of_arguments(
    in_axes: MappedAxes, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[int | None]:
    """Return the axis of each leaf of the arguments."""
    if isinstance(in_axes, (list, tuple)) and len(in_axes) != len(args):
        raise OptionError(
            f"vmap: in_axes has {len(in_axes)} entries, the function was called with {len(args)} "
            f"positional arguments; give one axis, or None, for each"
        )
    entries = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    leaf_axes = []
    for axes, value in zip(entries, args, strict=True):
        leaf_axes += _axes_of("vmap: in_axes", axes, value)
    return [*leaf_axes, *_axes_of("vmap: in_axes", 0, kwargs)]


def _axes_of(name: str, axes: Any, value: Any) -> list[int | None]:
    """Return an axis for each leaf of a tree, given one axis for all or a tree of axes."""
    if axes is None or hasattr(axes, "__index__"):
        return [None if axes is None else index(axes)] * len(flatten(value)[0])
    leaf_axes: list[int | None] = []
    if isinstance(axes, dict) and isinstance(value, dict) and axes.keys() == value.keys():
        for key, part in value.items():
            leaf_axes += _axes_of(name, axes[key], part)
        return leaf_axes
    both = isinstance(axes, (list, tuple)) and isinstance(value, (list, tuple))
    if both and len(axes) == len(value):
        for part_axes, part in zip(axes, value, strict=True):
            leaf_axes += _axes_of(name, part_axes, part)
        return leaf_axes
    raise OptionError(
        f"{name} must be an axis, None, or nested like the arrays that it is for; was given "
        f"{axes!r} for a value of type {type(value).__name__}"
    )


def _names(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return the name of each leaf of the arguments, for errors."""
    paths = []
    for i, value in enumerate(args):
        paths += _paths(f"argument {i}", value)
    for name, value in kwargs.items():
        paths += _paths(f"argument {name}", value)
    return paths


def _paths(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, (list, tuple)):
        parts = list(enumerate(value))
    else:
        return [] if value is None else [name]
    return [path for key, part in parts for path in _paths(f"{name}[{key!r}]", part)]


def _examples(
    leaves: Sequence[Any], axes: Sequence[int | None], names: Sequence[str]
) -> tuple[dict[Node, Node], list[Any], int]:
    """Return the batches by the placeholders of one example, the leaves of the arguments for the
    trace, and the number of examples."""
    batches: dict[Node, Node] = {}
    examples: list[Any] = []
    sizes: dict[int, str] = {}
    for leaf, axis, name in zip(leaves, axes, names, strict=True):
        if axis is None:
            examples.append(asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf)
            continue
        node = _mapped_argument(name, leaf, axis)
        dim = axis % node.ndim
        sizes.setdefault(node.shape[dim], f"{node.shape} along axis {dim} ({name})")
        order = (dim, *[d for d in range(node.ndim) if d != dim])
        example = placeholder(tuple(node.shape[d] for d in order[1:]), node.dtype)
        batches[example] = permute(node, order)
        examples.append(example)
    if not sizes:
        raise OptionError(
            "vmap: needs an argument with an axis along which the examples are stored; "
            "in_axes has none"
        )
    if len(sizes) > 1:
        shapes = " and ".join(sizes.values())
        raise ShapeError(
            f"vmap: the arguments must have as many examples each, was given {shapes}; "
            f"in_axes=None is for arguments that all examples share"
        )
    return batches, examples, next(iter(sizes))


def _mapped_argument(name: str, leaf: Any, axis: int) -> Node:
    if not isinstance(leaf, (Array, np.ndarray)):
        raise ShapeError(
            f"vmap: {name} is {leaf!r}, which has no axis {axis}; give None in its place in "
            f"in_axes, or pass an array"
        )
    node = (leaf if isinstance(leaf, Array) else asarray(leaf)).node
    if not -node.ndim <= axis < node.ndim:
        raise ShapeError(
            f"vmap: {name} has shape {node.shape}, which has no axis {axis} that numbers the "
            f"examples; give its axis, or None for an argument that all examples share, in in_axes"
        )
    return node


def _result(x: BatchOperand, axis: int | None) -> Array:
    """Return a result with the axis of the examples at position `axis`."""
    if axis is None:
        if x.varies:
            raise OptionError(
                f"vmap: out_axes is None for a result of shape {x.shape} that differs between "
                f"examples; give the axis that numbers them"
            )
        return Array(x.node)
    node = x.stacked
    if not -node.ndim <= axis < node.ndim:
        raise ShapeError(
            f"vmap: out_axes is {axis} for a result that has {node.ndim} dimensions with the axis "
            f"of the examples; give an axis from {-node.ndim} to {node.ndim - 1}"
        )
    order = list(range(1, node.ndim))
    order.insert(axis % node.ndim, 0)
    return Array(permute(node, tuple(order)))
