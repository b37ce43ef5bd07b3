"""Derivatives of functions whose results are arrays: products with the Jacobian, and the matrix.

All of them are reverse differentiation: a product with the transposed Jacobian (`vjp`) is one
gradient, a product with the Jacobian (`jvp`) the gradient of such products, which are linear in
their vectors, and the matrix (`jacobian`) a batch of the first, one for each element of the result,
or of the second, one for each element of the arguments. Names and semantics of `vjp` and `jvp` are
JAX's.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, TypeAlias, final

import numpy as np

from magmath.api.creation import asarray, eye, zeros_like
from magmath.api.manipulation import moveaxis, reshape
from magmath.api.reductions import sum
from magmath.arrays.array import Array, as_array
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
from magmath.transform.grad import Argnums, argument, argument_positions, grad, gradient_function
from magmath.transform.traced_function import placeholder
from magmath.transform.vmap import vmap

Product: TypeAlias = Callable[[Sequence[Array]], list[Array]]
"""Weights of results → the products with the transposed Jacobian, one for each source."""


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
    call = _Call("vjp", function, dict(enumerate(args)))
    multiplied = call.transposed(call.results)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        weights, given_nesting = flatten(cotangents)
        if given_nesting != call.nesting or any(
            as_array("vjp", w).shape != y.shape for w, y in zip(weights, call.results, strict=False)
        ):
            raise ShapeError(
                f"vjp: the cotangents must be nested and shaped like the outputs, which have "
                f"shapes {_shapes(call.results)}, was given {_shapes(weights)}; pass an array for "
                f"each output"
            )
        values = [
            as_array("vjp", w).astype(y.dtype) for w, y in zip(weights, call.results, strict=True)
        ]
        gradients_of_arguments: tuple[Any, ...] = unflatten(call.tree, multiplied(values))
        return gradients_of_arguments

    return call.outputs, pullback


def jvp(function: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Return the result of a function, and the product of its Jacobian and a vector: the derivative
    of the result along the tangents.

    `outputs, derivative = mm.jvp(f, (x, y), (dx, dy))`. primals and tangents are tuples with an
    entry for each argument, nested and shaped alike; the derivative is nested and shaped like the
    outputs. f is called once.

    Raises as `vjp`.
    """
    require_function("jvp: needs a function", function)
    for name, entries in (("primals", primals), ("tangents", tangents)):
        if not isinstance(entries, (tuple, list)):
            raise TypeError(
                f"jvp: {name} are a tuple with an entry for each argument, was given "
                f"{described(entries)}; write mm.jvp(f, (x,), (dx,))"
            )
    directions, directions_tree = flatten(tuple(tangents))
    points, tree = flatten(tuple(primals))
    if directions_tree != tree or any(
        as_array("jvp", t).shape != np.shape(x) for t, x in zip(directions, points, strict=False)
    ):
        raise ShapeError(
            f"jvp: the tangents must be nested and shaped like the primals, which have shapes "
            f"{_shapes(points)}, was given {_shapes(directions)}; pass a tuple with a tangent for "
            f"each argument"
        )
    call = _Call("jvp", function, dict(enumerate(primals)))
    multiplied = call.transposed(call.results)
    # The products with the transposed Jacobian are linear in the weights.
    derivative = grad(lambda weights: _inner(multiplied(weights), directions))(
        [zeros_like(y) for y in call.results]
    )
    return call.outputs, unflatten(call.nesting, derivative)


def jacobian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Jacobian of a function: all derivatives of its results.

    `mm.jacobian(f)(x)` has the shape of f(x), followed by that of x. `argnums` is the position of
    an argument, or a tuple of positions, for which the result is a tuple. Nested results and
    arguments give nested arrays: those of the arguments within those of the results, as in JAX. f
    is called once, so that all derivatives are those for the same random numbers; the cost is that
    of a batch of gradients, as many as the result or twice the arguments have elements.

    Raises as `vjp`.
    """
    require_function("jacobian: needs a function", function)

    def transformed(*args: Any, **kwargs: Any) -> Any:
        chosen = argument_positions("jacobian", argnums, len(args))
        given = {i: args[i] for i in chosen}
        args, kwargs = with_own_handles((args, kwargs))

        def called(*values: Any) -> Any:
            by_position = dict(zip(given, values, strict=True))
            return function(*[by_position.get(i, x) for i, x in enumerate(args)], **kwargs)

        call = _Call("jacobian", function, given, called)
        size = builtins.sum([x.size for x in call.sources])

        def derivatives(y: Array) -> Any:
            multiplied = call.transposed([y])
            # A product with the Jacobian costs about two with the transposed one.
            is_tall = 2 * size < y.size
            parts = _columns(multiplied, call.sources, y) if is_tall else _rows(multiplied, y)
            by_position = dict(zip(given, unflatten(call.tree, parts), strict=True))
            of_arguments = tuple([by_position[i] for i in chosen])
            return of_arguments if isinstance(argnums, Iterable) else of_arguments[0]

        return unflatten(call.nesting, [derivatives(y) for y in call.results])

    result: Callable[..., Any] = named(transformed, "jacobian", function)
    return result


def hessian(function: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return the function that computes the Hessian of a function that returns a 0-d array.

    `mm.hessian(f)(x)` has the shape of x twice. With several arguments, or nested ones, it is
    nested as `jacobian(grad(f))` is, whose value it is.
    """
    require_function("hessian: needs a function", function)
    derivatives = jacobian(gradient_function("hessian", function, argnums), argnums)
    result: Callable[..., Any] = named(derivatives, "hessian", function)
    return result


@final
class _Call:
    """A call of a function that is differentiated by arrays of its arguments.

    sources   the nodes of these arrays
    tree      how they are nested
    outputs   what the function returned
    results   the arrays of the outputs, with handles of their own
    nesting   how they are nested
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: Mapping[int, Any],
        called: Callable[..., Any] | None = None,
    ) -> None:
        """Call a function with arguments, given by their positions; by `called`, if it has others
        too."""
        arrays = [
            argument(name, x, position, is_real=True)
            for position, value in args.items()
            for x in flatten(value)[0]
        ]
        self.sources = [x.node for x in arrays]
        self.tree = flatten(tuple(args.values()))[1]
        with keeping_expressions() as self._expressions:
            self.outputs = (called or function)(*unflatten(self.tree, arrays))
            del arrays
        results, self.nesting = _results(name, function, self.outputs)
        self.results = [Array(y.node) for y in results]

    def transposed(self, results: Sequence[Array]) -> Product:
        """Return the function that multiplies by the transposed Jacobian of some of the results: by
        weights in their shapes and types."""
        placeholders = [placeholder(y.shape, y.dtype) for y in results]

        @cache
        def products() -> list[Node]:
            """Return the products with placeholders for the weights, which count as constants even
            if they depend on the arguments."""
            total = _inner(results, [Array(x) for x in placeholders])
            return gradients(total.node, self.sources, check_independence=False)

        def multiplied(weights: Sequence[Array]) -> list[Array]:
            values = [weight.node for weight in weights]
            images = dict(zip(placeholders, values, strict=True))
            return [Array(x) for x in substituted(products(), images)]

        return multiplied


def _rows(multiplied: Product, y: Array) -> list[Array]:
    """Return the derivatives of a result y by each source, from the products of unit vectors and
    the Jacobian."""
    unit_vectors = reshape(eye(y.size, dtype=y.dtype), (y.size, *y.shape))
    derivatives = vmap(lambda weight: multiplied([weight]))(unit_vectors)
    return [reshape(x, (*y.shape, *x.shape[1:])) for x in derivatives]


def _columns(multiplied: Product, sources: Sequence[Node], y: Array) -> list[Array]:
    """Return the derivatives of a result y by each source, from the products of the Jacobian and
    unit vectors."""

    def column(directions: list[Array]) -> Any:
        return grad(lambda weight: _inner(multiplied([weight]), directions))(zeros_like(y))

    sizes = [x.size for x in sources]
    ends = list(accumulate(sizes))
    spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    unit_vectors = [
        reshape(eye(ends[-1], dtype=x.dtype)[:, span], (ends[-1], *x.shape))
        for x, span in zip(sources, spans, strict=True)
    ]
    columns = moveaxis(vmap(column)(unit_vectors), 0, -1)
    return [
        reshape(columns[..., span], (*y.shape, *x.shape)).astype(x.dtype)
        for x, span in zip(sources, spans, strict=True)
    ]


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


def _inner(xs: Sequence[Any], ys: Sequence[Any]) -> Array:
    """Return the sum of the products of the elements of two lists of arrays; 0 for empty lists."""
    terms = [sum(x * y) for x, y in zip(xs, ys, strict=True)]
    return builtins.sum(terms[1:], terms[0]) if terms else asarray(0.0)
