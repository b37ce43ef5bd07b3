"""Derivatives of functions whose results are arrays: products with the Jacobian, and the matrix.

All of them are reverse differentiation: a product with the transposed Jacobian (`vjp`) is one
gradient, a product with the Jacobian (`jvp`) the gradient of such products, which are linear in
their vectors, and the matrix (`jacobian`) a batch of the first, one for each element of the result,
or of the second, one for each element of the arguments. Names and semantics of `vjp` and `jvp` are
JAX's.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from magmath.api.creation import asarray, eye, zeros_like
from magmath.api.manipulation import moveaxis, reshape
from magmath.api.reductions import sum
from magmath.arrays.array import Array, as_array
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.tree import flatten, unflatten
from magmath.autodiff import gradients
from magmath.engine.lifetimes.kept_expressions import keeping_expressions
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node
from magmath.graph.graph import substituted
from magmath.transform.function_argument import (
    described,
    named,
    require_function,
    with_own_handles,
)
from magmath.transform.grad import Argnums, argument, argument_positions, grad
from magmath.transform.traced_function import placeholder
from magmath.transform.vmap import vmap


def vjp(function: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """Return the result of a function, and the function that multiplies by its transposed Jacobian.

    `outputs, pullback = mm.vjp(f, x, y)`; `pullback(cotangents)`, with arrays nested and shaped
    like the outputs, returns for each argument the gradient of the sum of outputs · cotangents,
    nested and shaped like the argument. Arguments are arrays, Python floats, or lists, tuples and
    dictionaries of them, as are the outputs. f is called once.

    Raises DTypeError for arguments and outputs that are not real floating point, ShapeError for
    cotangents of another shape or nesting.
    """
    require_function("vjp: needs a function", function)
    tree = flatten(args)[1]
    arrays = [
        argument("vjp", value, i, is_real=True)
        for i, entry in enumerate(args)
        for value in flatten(entry)[0]
    ]
    nodes = [array.node for array in arrays]
    with keeping_expressions() as expressions:
        outputs = function(*unflatten(tree, arrays))
        del arrays
        results, nesting = _results("vjp", function, outputs)
    placeholders = [placeholder(y.shape, y.dtype) for y in results]

    @cache
    def products() -> list[Node]:
        """Return the products with placeholders for the cotangents, which count as constants even
        if they depend on the arguments."""
        assert expressions is not None, "the operands exist as long as this function"
        total = _inner(results, [Array(x) for x in placeholders])
        return gradients(total.node, nodes, check_independence=False)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        weights, given_nesting = flatten(cotangents)
        if given_nesting != nesting or any(
            as_array("vjp", w).shape != y.shape for w, y in zip(weights, results, strict=False)
        ):
            raise ShapeError(
                f"vjp: the cotangents must be nested and shaped like the outputs, which have "
                f"shapes {_shapes(results)}, was given {_shapes(weights)}; pass an array for each "
                f"output"
            )
        values = [as_array("vjp", w).astype(y.dtype).node for w, y in zip(weights, results)]  # noqa: B905
        derivatives = substituted(products(), dict(zip(placeholders, values, strict=True)))
        gradients_of_arguments: tuple[Any, ...] = unflatten(tree, [Array(x) for x in derivatives])
        return gradients_of_arguments

    return outputs, pullback


def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return the result of a function, and the product of its Jacobian and a vector: the derivative
    of the result along the tangents.

    `outputs, derivative = mm.jvp(f, (x, y), (dx, dy))`. primals and tangents are tuples with an
    entry for each argument, nested and shaped alike; the derivative is nested and shaped like the
    outputs. f is called twice, and must not draw random numbers or assign variables.

    Raises as `vjp`.
    """
    require_function("jvp: needs a function", function)
    for name, entries in (("primals", primals), ("tangents", tangents)):
        if not isinstance(entries, (tuple, list)):
            raise TypeError(
                f"jvp: {name} are a tuple with an entry for each argument, was given "
                f"{described(entries)}; write mm.jvp(f, (x,), (dx,))"
            )
    computed = _updating_nothing(function)
    primals = tuple([_arrays("jvp", x) for x in primals])
    directions, directions_tree = flatten(tuple(tangents))
    points, tree = flatten(primals)
    if directions_tree != tree or any(
        as_array("jvp", t).shape != as_array("jvp", x).shape
        for t, x in zip(directions, points, strict=False)
    ):
        raise ShapeError(
            f"jvp: the tangents must be nested and shaped like the primals, which have shapes "
            f"{_shapes(points)}, was given {_shapes(directions)}; pass a tuple with a tangent for "
            f"each argument"
        )
    outputs = computed(*primals)
    results, nesting = _results("jvp", function, outputs)

    def along(weights: list[Array]) -> Array:
        """Return the product of tangents, Jacobian and weights, which is linear in the weights."""

        def weighted(*args: Any) -> Array:
            return _inner(flatten(computed(*args))[0], weights)

        derivatives = grad(weighted, argnums=tuple(range(len(primals))))(*primals)
        return _inner(flatten(derivatives)[0], directions)

    derivative = grad(along)([zeros_like(y) for y in results])
    return outputs, unflatten(nesting, derivative)


def jacobian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of a function: all derivatives of its results.

    `mm.jacobian(f)(x)` has the shape of f(x), followed by that of x. `argnums` is the position of
    an argument, or a tuple of positions, for which the result is a tuple. Nested results and
    arguments give nested arrays: those of the arguments within those of the results, as in JAX. f
    is called once for each array that it returns, and once before for their shapes; the cost is
    that of a batch of gradients, as many as the result or twice the arguments have elements.

    Raises as `vjp`.
    """
    require_function("jacobian: needs a function", function)
    computed = _updating_nothing(function)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        chosen = argument_positions("jacobian", argnums, len(args))
        args = tuple([_arrays("jacobian", x) if i in chosen else x for i, x in enumerate(args)])
        results, nesting = _results("jacobian", function, computed(*args, **kwargs))
        leaves = flatten(tuple([args[i] for i in chosen]))[0]
        sources = [as_array("jacobian", x) for x in leaves]
        size = builtins.sum([x.size for x in sources])

        def result(index: int) -> Callable[..., Array]:
            return lambda *arguments: flatten(computed(*arguments, **kwargs))[0][index]

        # A product with the Jacobian costs about two with the transposed one.
        parts = [
            _columns(result(i), argnums, args, sources, y)
            if 2 * size < y.size
            else _rows(result(i), argnums, args, y)
            for i, y in enumerate(results)
        ]
        return unflatten(nesting, parts)

    result: Callable[..., Any] = named(transformed, "jacobian", function)
    return result


def hessian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian of a function that returns a 0-d array.

    `mm.hessian(f)(x)` has the shape of x twice. With several arguments, or nested ones, it is
    nested as `jacobian(grad(f))` is, whose value it is.
    """
    require_function("hessian: needs a function", function)
    derivatives = jacobian(grad(function, argnums=argnums), argnums)
    result: Callable[..., Any] = named(derivatives, "hessian", function)
    return result


def _arrays(name: str, value: Any) -> Any:
    """Return an argument with arrays in place of numbers. Raises DTypeError for complex arrays."""
    leaves, tree = flatten(value)
    arrays = [asarray(x) if is_number(x) else as_array(name, x) for x in leaves]
    for x in arrays:
        if x.dtype.kind == "complex":
            raise DTypeError(
                f"{name}: needs real floating point, was given {x.dtype}; "
                f"differentiate by the real and imaginary parts"
            )
    return unflatten(tree, [Array(x.node) for x in arrays])


def _updating_nothing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose updates in place of arguments stay inside: it is called several times
    with the same arrays."""

    def called(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = with_own_handles((args, kwargs))
        return function(*args, **kwargs)

    return called


def _rows(function: Callable[..., Array], argnums: Argnums, args: Any, y: Array) -> Any:
    """Return the derivatives of a function with one result, of the shape and type of y, from the
    products of unit vectors and the Jacobian."""

    def row(weight: Array) -> Any:
        return grad(lambda *values: sum(function(*values) * weight), argnums=argnums)(*args)

    unit_vectors = reshape(eye(y.size, dtype=y.dtype), (y.size, *y.shape))
    derivatives, tree = flatten(vmap(row)(unit_vectors))
    return unflatten(tree, [reshape(x, (*y.shape, *x.shape[1:])) for x in derivatives])


def _columns(
    function: Callable[..., Array], argnums: Argnums, args: Any, sources: Sequence[Array], y: Array
) -> Any:
    """Return the derivatives of a function with one result, of the shape and type of y, by the
    sources, the arrays of the arguments `argnums`, from the products of the Jacobian and unit
    vectors."""
    trees = []

    def column(directions: list[Array]) -> Any:
        def along(weight: Array) -> Array:
            product = grad(lambda *values: sum(function(*values) * weight), argnums=argnums)(*args)
            derivatives, tree = flatten(product)
            trees.append(tree)
            return _inner(derivatives, directions)

        return grad(along)(zeros_like(y))

    sizes = [x.size for x in sources]
    ends = list(accumulate(sizes))
    spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    unit_vectors = [
        reshape(eye(ends[-1], dtype=x.dtype)[:, span], (ends[-1], *x.shape))
        for x, span in zip(sources, spans, strict=True)
    ]
    columns = moveaxis(vmap(column)(unit_vectors), 0, -1)
    parts = [
        reshape(columns[..., span], (*y.shape, *x.shape)).astype(x.dtype)
        for x, span in zip(sources, spans, strict=True)
    ]
    return unflatten(trees[-1], parts)


def _results(name: str, function: Callable[..., Any], outputs: Any) -> tuple[list[Array], Any]:
    """Return the arrays of a result, and their nesting."""
    results, nesting = flatten(outputs)
    for y in results:
        if not isinstance(y, Array):
            raise TypeError(
                f"{name}: {function!r} must return arrays, or lists, tuples and dictionaries of "
                f"them; it returned a {type(y).__name__}"
            )
        if not y.dtype.is_floating:
            raise DTypeError(
                f"{name}: a derivative needs results of real floating point, the function returned "
                f"{y.dtype}; convert it with mm.astype"
            )
    return results, nesting


def _shapes(arrays: Sequence[Any]) -> str:
    return str([np.shape(x) for x in arrays])


def _inner(xs: list[Any], ys: list[Any]) -> Array:
    """Return the sum of the products of the elements of two lists of arrays; 0 for empty lists."""
    terms = [sum(x * y) for x, y in zip(xs, ys, strict=True)]
    return builtins.sum(terms[1:], terms[0]) if terms else asarray(0.0)
