"""PyTorch's operators (ATen) in magmath's functions.

`OPERATORS` maps the name of an operator to a function of the arguments of its overloads, except
`OTHER_OVERLOADS`. A program of `torch.export` calls operators in their functional forms, so none
updates its operands.
"""

from __future__ import annotations

from typing import Any

from magmath.interop.reading_torch.aten_activations import ACTIVATIONS
from magmath.interop.reading_torch.aten_arithmetic import ARITHMETIC
from magmath.interop.reading_torch.aten_convolution import CONVOLUTION
from magmath.interop.reading_torch.aten_creation import CREATION
from magmath.interop.reading_torch.aten_elements import ELEMENTS
from magmath.interop.reading_torch.aten_layers import LAYERS
from magmath.interop.reading_torch.aten_linear_algebra import FOURIER, LINEAR_ALGEBRA
from magmath.interop.reading_torch.aten_normalization import NORMALIZATION
from magmath.interop.reading_torch.aten_reductions import REDUCTIONS
from magmath.interop.reading_torch.aten_shapes import SHAPES
from magmath.interop.reading_torch.aten_types import Operator


def _ignored(*args: Any, **kwargs: Any) -> None:
    """A check of sizes and types, which the program of the example has passed."""


OTHER_OVERLOADS = ("view.dtype", "lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data")
"""Overloads that magmath does not have: the bits of elements in another type, and sequences of
several lengths. Their arguments are as many as those of the overloads that it has."""

OPERATORS: dict[str, Operator] = {
    **ARITHMETIC,
    **ACTIVATIONS,
    **SHAPES,
    **ELEMENTS,
    **CREATION,
    **REDUCTIONS,
    **CONVOLUTION,
    **NORMALIZATION,
    **LAYERS,
    **LINEAR_ALGEBRA,
    **FOURIER,
    # sizes and checks
    "sym_size": lambda x, axis: x.shape[axis],
    "sym_numel": lambda x: x.size,
    "_assert_scalar": _ignored,
    "_assert_async": _ignored,
    "_assert_tensor_metadata": _ignored,
    "sym_constrain_range_for_size": _ignored,
    "sym_constrain_range": _ignored,
}
