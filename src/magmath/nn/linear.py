"""Products of inputs and weights: linear and bilinear maps of features."""

from __future__ import annotations

from magmath.api.einsum import einsum
from magmath.arrays.array import Array, as_array
from magmath.errors import ShapeError
from magmath.nn.layer_input import check_shape, layer_input


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return x · weight + bias: x (…, inputs), weight (inputs, units), bias (units,).

    Integers are converted to the weight's type. Raises ShapeError for other shapes.
    """
    weight = as_array("linear", weight)
    x = layer_input("linear", x, weight)
    if weight.ndim == 2 and x.ndim and x.shape[-1] != weight.shape[0]:
        is_transposed = x.shape[-1] == weight.shape[1]
        remedy = "give weight.T, for a weight (units, inputs) of PyTorch" if is_transposed else ""
        raise ShapeError(
            f"linear: needs x (…, inputs) and weight (inputs, units), was given {x.shape} and "
            f"{weight.shape}; {remedy or 'the last extent of x is the first one of the weight'}"
        )
    y = x @ weight
    return _with_bias("linear", y, bias, weight.shape[-1])


def bilinear(x1: Array, x2: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return y[…,k] = bias[k] + Σ_i,j x1[…,i] · weight[k,i,j] · x2[…,j].

    Integers are converted to the weight's type. Raises ShapeError for other shapes.
    """
    x1, x2 = layer_input("bilinear", x1, weight), layer_input("bilinear", x2, weight)
    first, second = weight.shape[1:]
    if x1.shape[-1:] != (first,) or x2.shape[-1:] != (second,) or x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            f"bilinear: a weight of {weight.shape} takes (…, {first}) and (…, {second}), was given "
            f"{x1.shape} and {x2.shape}; give inputs with these last axes and equal other axes"
        )
    y = einsum("...i,kij,...j->...k", x1, weight, x2)
    return _with_bias("bilinear", y, bias, weight.shape[0])


def _with_bias(name: str, y: Array, bias: Array | None, units: int) -> Array:
    """Return y (…, units) plus the bias of the units."""
    check_shape(name, "bias", bias, (units,), "a number for each unit of the weight")
    return y if bias is None else y + bias
