"""Gradients of products along an axis, without divisions.

The derivative of a product by one of its factors is the product of the other factors. total / x is
wrong at zeros, and so are all higher derivatives of formulas that treat zeros apart. So a product
is differentiated as a tree, and a running product as a prefix scan, of multiplications of two
numbers, whose derivatives are multiplications too.
"""

from __future__ import annotations

from math import prod

from magmath.core.shapes import with_extent
from magmath.graph import Node, apply
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import full
from magmath.ops.elementwise import call, where
from magmath.ops.leaves import constant
from magmath.ops.manipulation import permute, reshape
from magmath.ops.slicing import slice_along


def products_of_others(x: Node, axes: tuple[int, ...]) -> Node:
    """Return, for each element, the product of the other elements along the axes.

    Multiplies halves until one element is left, and goes back along the tree: 3 multiplications for
    each element.
    """
    kept_dims = [d for d in range(x.ndim) if d not in axes]
    order = (*kept_dims, *axes)
    flat = reshape(
        permute(x, order), (*[x.shape[d] for d in kept_dims], prod(x.shape[d] for d in axes))
    )
    products = _products_of_others_along(flat, len(kept_dims))
    moved = reshape(products, tuple([x.shape[d] for d in order]))
    return permute(moved, tuple(map(order.index, range(x.ndim))))


def _products_of_others_along(x: Node, axis: int) -> Node:
    extent = x.shape[axis]
    if extent < 2:
        return full(x.shape, constant(1, x.dtype))
    half = extent // 2
    first, second = slice_along(x, axis, 0, half), slice_along(x, axis, half, 2 * half)
    odd = extent % 2
    last = slice_along(x, axis, 2 * half, extent)
    pairs = first * second
    above = _products_of_others_along(apply(CONCAT, pairs, last, axis=axis) if odd else pairs, axis)
    of_pairs = slice_along(above, axis, 0, half) if odd else above
    parts = [of_pairs * second, of_pairs * first]
    return apply(CONCAT, *parts, *[slice_along(above, axis, half, half + 1)] * odd, axis=axis)


def gradient_of_running_product(x: Node, g: Node, axis: int) -> Node:
    """Return the gradient of the running product of x, given that of its results.

    Doubles the distance of the multiplied elements in each of log₂ n steps (Hillis and Steele
    1986), and goes back along these steps.
    """
    levels: list[Node] = []
    step, extent = 1, x.shape[axis]
    while step < extent:
        levels.append(x)
        x = x * _moved(x, axis, step, 1)
        step *= 2
    for level in reversed(levels):
        step //= 2
        g = g * _moved(level, axis, step, 1) + _moved(g * level, axis, -step, 0)
    return g


def products_of_others_in_segments(x: Node, before: Node, behind: Node, axis: int) -> Node:
    """Return, for each element, the product of the other elements of its segment of the axis.

    `before` and `behind` are the numbers of these elements on both sides, which broadcast to x. The
    distance of the multiplied elements doubles in each of log₂ n steps.
    """
    sides = []
    for number, direction in ((before, 1), (behind, -1)):
        has_others = call("less", constant(0, number.dtype), number)
        others = where(has_others, _moved(x, axis, direction, 1), _ones_like(x))
        step = 1
        while step < x.shape[axis]:
            further = _moved(others, axis, direction * step, 1)
            is_within = call("less_equal", constant(step, number.dtype), number)
            others = others * where(is_within, further, _ones_like(x))
            step *= 2
        sides.append(others)
    return sides[0] * sides[1]


def _ones_like(x: Node) -> Node:
    return constant(1, x.dtype)


def _moved(x: Node, axis: int, by: int, value: int) -> Node:
    """Return x with its elements moved along an axis, and a value in the freed positions."""
    extent, count = x.shape[axis], abs(by)
    freed = full(with_extent(x.shape, axis, count), constant(value, x.dtype))
    if by > 0:
        return apply(CONCAT, freed, slice_along(x, axis, 0, extent - count), axis=axis)
    return apply(CONCAT, slice_along(x, axis, count, extent), freed, axis=axis)
