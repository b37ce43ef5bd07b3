"""Rows of the tables of element-wise operations: what follows from an operation's being one.

The result's shape and type, the index notation and the cost follow from the row's entries, and so
does NumPy's function, which is faster than torch's on short arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from magmath.graph import Operation
from magmath.graph.numpy_ufunc import NumpyUfunc
from magmath.graph.operation import Kernel, Vjp
from magmath.graph.public_function import PublicFunction
from magmath.ops.elementwise.torch_gaps import (
    absolute_kernel,
    arithmetic_kernel,
    flag_kernel,
    host_kernel,
    parts_kernel,
    power_kernel,
    quotient_kernel,
    remainder_kernel,
    root_kernel,
    sign_kernel,
    square_kernel,
)
from magmath.ops.index_letters import pointwise_axes
from magmath.ops.kernel_binding import torch_kernel
from magmath.ops.shared_fields import flops_per_element
from magmath.ops.type_rules import ResultType, pointwise_infer

SINGLE_THREAD_ELEMENTS = 1 << 15
"""Number of elements up to which torch computes an element-wise function with one thread."""
MAX_NUMPY_RESULT = 1 << 17
"""Number of elements up to which NumPy's loop of one instruction on one thread takes no longer than
torch's on two, whose second thread must be woken."""
NUMPY_LOOP_FLOPS = 8192
"""Flops that take no longer than the overhead of one torch call."""
_ALL = ("bool", "int", "uint", "float")
UFUNC_KINDS: Mapping[Callable[..., Kernel], tuple[str, ...]] = {
    torch_kernel: _ALL, arithmetic_kernel: _ALL, parts_kernel: _ALL, root_kernel: _ALL,
    flag_kernel: _ALL, absolute_kernel: _ALL, square_kernel: _ALL, host_kernel: _ALL,
    sign_kernel: ("int", "uint", "float"),
    quotient_kernel: ("int", "uint"), remainder_kernel: ("int", "uint"), power_kernel: ("float",),
}  # fmt: skip
"""Kernels that compute what NumPy's function of the name computes, and the kinds of types for which
they do."""


def row(
    name: str,
    domain: str,
    native: str | Mapping[str, str] | None,
    vjp: Vjp,
    *,
    torch: str | None = None,
    numpy: Callable[..., Any] | None = None,
    result: ResultType = None,
    kernel: Callable[[str, Callable[..., Any]], Kernel] = torch_kernel,
    flops: float = 1.0,
    avx2: float = 0.0,
    avx512: float = 0.0,
    summary: str = "",
    of_bools: str = "",
    is_associative: bool = False,
    identity: complex | None = None,
    **fields: Any,
) -> Operation:
    """Return the record of an element-wise operation.

    domain         the types that it takes: a key of `type_rules.DOMAINS`
    native         the scalar expression, or one for each kind of the result's type: `{0}` and `{1}`
                   are the operands, `{one}` a 1 of their type; None: it stays a call
    torch, numpy   the functions of the libraries, if they have other names
    result         the result's type, if it is not that of the operands
    kernel         makes the kernel of torch's name and NumPy's function
    flops          the cost of one element, in additions
    avx2, avx512   the time of torch's function by that of NumPy's on one thread with AVX2 or
                   AVX-512, for the type for which it is the least; 0 if it is less than 1.4
    summary, of_bools, is_associative, identity
                   fields of `PublicFunction`
    vjp, fields    fields of `Operation`
    """
    reference, ufunc = numpy or getattr(np, torch or name), None
    kinds = UFUNC_KINDS.get(kernel)
    if kinds and isinstance(reference, np.ufunc):
        out_last = _with_positional_out(reference)
        ufunc = NumpyUfunc(out_last, _max_numpy_elements(flops), avx2, avx512, kinds)
    return Operation(
        name=name,
        infer=pointwise_infer(name, domain, result),
        axes=pointwise_axes,
        reduction=None,
        vjp=vjp,
        kernel=kernel(torch or name, reference),
        native=native,
        reference=reference,
        flops=flops_per_element(flops),
        is_elementwise=True,
        numpy_ufunc=ufunc,
        public=PublicFunction(
            summary=summary,
            is_of_floats="floating" in domain,
            of_bools=of_bools,
            is_associative=is_associative,
            identity=identity,
        ),
        **fields,
    )


def _max_numpy_elements(flops: float) -> int:
    """Return the number of elements up to which NumPy's loop is faster than a call of torch."""
    return MAX_NUMPY_RESULT if flops <= 1 else int(NUMPY_LOOP_FLOPS / flops)


def _with_positional_out(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return NumPy's ufunc with the output as last positional operand.

    This takes half the time of `out=`.
    """
    if function in (np.maximum, np.minimum):  # these warn about a positional output
        return lambda x, y, out: function(x, y, out=out)
    return function
