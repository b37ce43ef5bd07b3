"""The parts of complex parameters: an update rule sees their real and imaginary parts as one real
array, so that it needs no rule of its own for complex numbers, as in PyTorch's optimizers."""

from __future__ import annotations

from magmath.graph import Node, apply
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise import astype, call
from magmath.ops.manipulation import reshape
from magmath.ops.slicing import slice_along


def parts_of(x: Node) -> Node:
    """Return the real and the imaginary parts, (2, …), of a complex array; a real one as it is."""
    if x.dtype.kind != "complex":
        return x
    parts = [reshape(call(name, x), (1, *x.shape)) for name in ("real", "imag")]
    return apply(CONCAT, *parts, axis=0)


def parts_of_gradient(gradient: Node, parameter: Node) -> Node:
    """Return the parts of the gradient of a parameter, which may be real though that is complex."""
    if parameter.dtype.kind == "complex" and gradient.dtype.kind != "complex":
        gradient = astype(gradient, parameter.dtype)
    return parts_of(gradient)


def of_parts(parts: Node, like: Node) -> Node:
    """Return the array with these parts: complex, or as it is, as `like` is."""
    if like.dtype.kind != "complex":
        return parts
    real, imaginary = [reshape(slice_along(parts, 0, i, i + 1), like.shape) for i in (0, 1)]
    return call("complex", real, imaginary)
