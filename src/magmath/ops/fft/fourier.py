"""Discrete Fourier transforms: complex to complex over any axes, and to and from real signals.

A transform needs its axes whole; every other axis may be split. A transform over several axes
equals successive transforms over some of them. For split axes, the place pass gets this as a
decomposition: first the axes that are whole in the current layout, then the others, with one
redistribution between (the pencils of Pekurovsky, "P3DFFT", SIAM J. Sci. Comput. 34, 2012).

The matrix of a transform is symmetric, so a transform is its own transpose, and its gradient is a
transform of the same direction and scale. One half determines the spectrum of a real signal: an
interior coefficient represents two, hence the factors of 2 in the gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from magmath.core.dtypes import DType, complex64, complex128, float32, float64, int64
from magmath.core.shapes import with_extent
from magmath.core.type_aliases import BoundCall
from magmath.errors import DTypeError, OptionError, ShapeError
from magmath.graph import KernelCall, Node, Operation, Shape, apply
from magmath.graph.operation import Gradients
from magmath.layout import Layout
from magmath.ops.concatenation import CONCAT
from magmath.ops.creation import iota
from magmath.ops.elementwise import astype, call, conj, where
from magmath.ops.fft.bluestein import SHORTEST, bluestein_fft
from magmath.ops.fft.four_step_fft import (
    Transform,
    four_steps,
    four_steps_of_real,
    four_steps_to_real,
    rows_of,
)
from magmath.ops.index_letters import letters_except, one_axis_whole
from magmath.ops.kernel_binding import by_reference
from magmath.ops.leaves import constant
from magmath.ops.slicing import SLICE, slice_along

COMPLEX_OF = {float32: complex64, float64: complex128}
REAL_OF = {complex64: float32, complex128: float64}
MAX_NUMPY_TRANSFORM = 1 << 11
"""Elements up to which NumPy's transforms take less time than to bind others."""
NORMS = ("backward", "ortho", "forward")
"""Position of the factor 1/n: in the inverse transform, as 1/√n in both, or in the forward one."""


def _check(name: str, x: Node, types: Sequence[DType], axes: Sequence[int], norm: str) -> None:
    if x.dtype not in types:
        raise DTypeError(
            f"{name}: takes {' or '.join(map(str, types))}, was given {x.dtype}; convert with "
            f"mm.astype(x, …)"
        )
    if norm not in NORMS:
        raise OptionError(f'{name}: norm must be "backward", "ortho" or "forward", was {norm!r}')
    for axis in axes:
        if x.shape[axis] < 1:
            raise ShapeError(
                f"{name}: axis {axis} of shape {x.shape} has no elements; a transform needs 1"
                "; leave empty arrays out"
            )


def _fft_flops(node: Node) -> float:
    """Return 5 n log₂ n flops for each complex transform (Van Loan 1992), half for real ones."""
    whole = max(node.inputs[0].size, node.size)
    axes = node.attributes["axes"] if "axes" in node.attributes else (node.attributes["axis"],)
    shape = max((node.inputs[0].shape, node.shape), key=math.prod)
    real = 1.0 if node.name == "fft_c2c" else 0.5
    return real * 5.0 * whole * sum(math.log2(max(shape[d], 2)) for d in axes)


def _efficiency(node: Node, shape: Shape) -> float:
    """Return the share of full speed.

    A core that multiplies matrices at 100 GFLOP/s computes longer transforms at 15 GFLOP/s.
    """
    return 0.15


# complex to complex -----------------------------------------------------------------------------


def _c2c_infer(x: Node, *, axes: tuple[int, ...], inverse: bool, norm: str) -> tuple[Shape, DType]:
    _check("fft", x, (complex64, complex128), axes, norm)
    return x.shape, x.dtype


def _c2c_axes(node: Node) -> str:
    letters = letters_except(node.ndim, node.attributes["axes"])
    return f"{letters}->{letters}"


def _bound(call: KernelCall, transform: Callable[..., BoundCall], **attributes: Any) -> BoundCall:
    """Return the bound call of a transform; in deterministic mode on aligned memory, since an FFT
    library selects its code path by alignment and strides."""
    bind: Callable[..., BoundCall] = partial(transform, **attributes)
    if not call.context.deterministic:
        return bind(call.out, call.inputs[0])
    from magmath.kernels.gemm.deterministic_gemm import bind_aligned

    return bind_aligned(bind, call.out, call.inputs[0])


def _c2c_kernel(call: KernelCall) -> BoundCall:
    from magmath.kernels.fft.fft import transform

    return _bound(call, transform, **call.attributes)


def _c2c_reference(x: Any, *, axes: tuple[int, ...], inverse: bool, norm: Any) -> Any:
    return (np.fft.ifftn if inverse else np.fft.fftn)(x, axes=axes, norm=norm)


def _of_short(node: Node) -> Callable[..., object] | None:
    """Return NumPy's transform of few elements, which takes less time than to bind a plan."""
    return by_reference(node) if node.inputs[0].size <= MAX_NUMPY_TRANSFORM else None


def _c2c_decompositions(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return transforms over the whole axes first, then over the others, at once or one by one.

    A single split axis is transformed in four steps or by Bluestein's algorithm.
    """
    axes, (layout,) = node.attributes["axes"], layouts
    if len(axes) == 1:
        if layout.splits[axes[0]] is None:
            return []
        inverse = node.attributes["inverse"]
        steps = four_steps(node.inputs[0], axes[0], _along(node), inverse)
        return steps or _c2c_chirped(node, axes[0])
    split = tuple(d for d in axes if layout.splits[d] is not None) or axes[:1]
    whole = tuple(d for d in axes if d not in split)
    alone = [(d,) for d in split]
    sequences = [[whole, split]] if whole else []
    if len(split) > 1:
        sequences.append([whole, *alone] if whole else alone)
    return [_in_turn(node, groups) for groups in sequences]


def _c2c_chirped(node: Node, axis: int) -> list[Node]:
    """Return the transform by Bluestein's algorithm, which uses transforms of another length."""

    def plain(x: Node, inverse: bool) -> Node:
        return apply(FFT, x, line=node.line, axes=(axis,), inverse=inverse, norm="backward")

    x, inverse, norm = node.inputs[0], node.attributes["inverse"], node.attributes["norm"]
    unscaled = norm == ("forward" if inverse else "backward")
    power = 0.0 if unscaled else 0.5 if norm == "ortho" else 1.0
    return bluestein_fft(x, axis, plain, inverse, float(x.shape[axis]) ** -power)


def _in_turn(node: Node, groups: Sequence[tuple[int, ...]]) -> Node:
    """Return successive transforms over groups of axes."""
    result = node.inputs[0]
    for axes in groups:
        result = apply(FFT, result, line=node.line, **{**node.attributes, "axes": axes})
    return result


def _along(node: Node) -> Transform:
    """Return the complex transform along one axis, with a node's direction and scale."""
    attributes = {name: node.attributes[name] for name in ("inverse", "norm")}
    return lambda x, axis: apply(FFT, x, line=node.line, axes=(axis,), **attributes)


FFT: Operation = Operation(
    name="fft_c2c",
    infer=_c2c_infer,
    axes=_c2c_axes,
    reduction=None,
    vjp=lambda node, g: (apply(FFT, g, **node.attributes),),
    kernel=_c2c_kernel,
    native=None,
    reference=_c2c_reference,
    numpy_function=_of_short,
    flops=_fft_flops,
    efficiency=_efficiency,
    decompositions=_c2c_decompositions,
    can_overwrite_operand=True,
)


def fft(x: Node, axes: tuple[int, ...], *, inverse: bool, norm: str) -> Node:
    """Return the transform of a complex array over some of its axes."""
    if not axes:
        return x
    return apply(FFT, x, axes=axes, inverse=inverse, norm=norm)


# real to complex --------------------------------------------------------------------------------


def _r2c_infer(x: Node, *, axis: int, inverse: bool, norm: str) -> tuple[Shape, DType]:
    _check("rfft", x, (float32, float64), (axis,), norm)
    return with_extent(x.shape, axis, x.shape[axis] // 2 + 1), COMPLEX_OF[x.dtype]


def _r2c_kernel(call: KernelCall) -> BoundCall:
    from magmath.kernels.fft.fft import transform_of_real

    return _bound(call, transform_of_real, **call.attributes)


def _r2c_reference(x: Any, *, axis: int, inverse: bool, norm: Any) -> Any:
    return (np.fft.ihfft if inverse else np.fft.rfft)(x, axis=axis, norm=norm)


def _r2c_vjp(node: Node, g: Node) -> Gradients:
    axis, n = node.attributes["axis"], node.inputs[0].shape[node.attributes["axis"]]
    half = where(_edges(g, axis, n), g, g * 0.5)
    return (apply(FFT_TO_REAL, half, n=n, **node.attributes),)


def _r2c_decompositions(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return the transform in four steps, or as a complex one, for a split axis."""
    x, axis, inverse = node.inputs[0], node.attributes["axis"], node.attributes["inverse"]
    if layouts[0].splits[axis] is None:
        return []

    def first(matrix: Node, axis: int) -> Node:
        return apply(FFT_OF_REAL, matrix, line=node.line, **{**node.attributes, "axis": axis})

    steps = four_steps_of_real(x, axis, first, _along(node), inverse)
    return steps or _of_real_as_complex(node)


def _of_real_as_complex(node: Node) -> list[Node]:
    """Return the first half of the complex transform, if the axis is long enough."""
    (x,), axis = node.inputs, node.attributes["axis"]
    if x.shape[axis] < SHORTEST:
        return []
    every = _along(node)(astype(x, node.dtype), axis)
    return [slice_along(every, axis, 0, node.shape[axis])]


FFT_OF_REAL: Operation = Operation(
    name="fft_r2c",
    infer=_r2c_infer,
    axes=one_axis_whole,
    reduction=None,
    vjp=_r2c_vjp,
    kernel=_r2c_kernel,
    native=None,
    reference=_r2c_reference,
    numpy_function=_of_short,
    flops=_fft_flops,
    efficiency=_efficiency,
    decompositions=_r2c_decompositions,
)


def fft_of_real(x: Node, axis: int, *, inverse: bool, norm: str) -> Node:
    """Return the first n // 2 + 1 coefficients of the transform of a real array."""
    return apply(FFT_OF_REAL, x, axis=axis, inverse=inverse, norm=norm)


# complex to real --------------------------------------------------------------------------------


def _c2r_infer(x: Node, *, axis: int, n: int, inverse: bool, norm: str) -> tuple[Shape, DType]:
    _check("irfft", x, (complex64, complex128), (axis,), norm)
    if x.shape[axis] != n // 2 + 1:
        raise ShapeError(
            f"irfft: a real signal of {n} elements has {n // 2 + 1} coefficients, axis {axis} of "
            f"shape {x.shape} has {x.shape[axis]}"
            f"; pass n={2 * x.shape[axis] - 2} or n={2 * x.shape[axis] - 1}"
        )
    return with_extent(x.shape, axis, n), REAL_OF[x.dtype]


def _c2r_kernel(call: KernelCall) -> BoundCall:
    from magmath.kernels.fft.fft import transform_to_real

    attributes = {name: value for name, value in call.attributes.items() if name != "n"}
    return _bound(call, transform_to_real, **attributes)


def _c2r_reference(x: Any, *, axis: int, n: int, inverse: bool, norm: Any) -> Any:
    return (np.fft.irfft if inverse else np.fft.hfft)(x, n=n, axis=axis, norm=norm)


def _c2r_vjp(node: Node, g: Node) -> Gradients:
    attributes = {key: value for key, value in node.attributes.items() if key != "n"}
    spectrum = apply(FFT_OF_REAL, g, **attributes)
    edges = _edges(spectrum, attributes["axis"], node.attributes["n"])
    return (where(edges, spectrum, spectrum * 2.0),)


def _c2r_decompositions(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return the transform in four steps, or as a complex one, for a split axis."""
    axis, n, inverse = (node.attributes[name] for name in ("axis", "n", "inverse"))
    if layouts[0].splits[axis] is None:
        return []

    def last(matrix: Node, axis: int) -> Node:
        attributes = {**node.attributes, "axis": axis, "n": rows_of(n)}
        return apply(FFT_TO_REAL, matrix, line=node.line, **attributes)

    steps = four_steps_to_real(node.inputs[0], axis, n, _along(node), last, inverse)
    return steps or _to_real_as_complex(node)


def _to_real_as_complex(node: Node) -> list[Node]:
    """Return the real part of the complex transform of all coefficients, for a long enough axis.

    Coefficients without a conjugate partner contribute only their real parts.
    """
    (x,), axis, n = node.inputs, node.attributes["axis"], node.attributes["n"]
    if n < SHORTEST:
        return []
    known = where(_edges(x, axis, n), astype(call("real", x), x.dtype), x)
    bounds = [(0, extent, 1) for extent in x.shape]
    bounds[axis] = ((n - 1) // 2, 0, -1)
    conjugates = conj(apply(SLICE, known, bounds=tuple(bounds)))
    return [call("real", _along(node)(apply(CONCAT, known, conjugates, axis=axis), axis))]


FFT_TO_REAL: Operation = Operation(
    name="fft_c2r",
    infer=_c2r_infer,
    axes=one_axis_whole,
    reduction=None,
    vjp=_c2r_vjp,
    kernel=_c2r_kernel,
    native=None,
    reference=_c2r_reference,
    numpy_function=_of_short,
    flops=_fft_flops,
    efficiency=_efficiency,
    decompositions=_c2r_decompositions,
)


def fft_to_real(x: Node, axis: int, n: int, *, inverse: bool, norm: str) -> Node:
    """Return the real array of `n` elements along `axis` whose transform has these coefficients."""
    return apply(FFT_TO_REAL, x, axis=axis, n=n, inverse=inverse, norm=norm)


def _edges(spectrum: Node, axis: int, n: int) -> Node:
    """Return a mask of coefficients without a conjugate partner: index 0, and n/2 for even n."""
    shape = tuple(m if d == axis else 1 for d, m in enumerate(spectrum.shape))
    index = iota(shape, axis)
    first = call("equal", index, constant(0, int64))
    return (
        first if n % 2 else call("logical_or", first, call("equal", index, constant(n // 2, int64)))
    )


OPERATIONS = {record.name: record for record in (FFT, FFT_OF_REAL, FFT_TO_REAL)}
