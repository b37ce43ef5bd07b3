"""Correlation over spatial dimensions, of signals and of network inputs, and its two transposes.

All three relate x (batch, channels, *space), w (outputs, channels / groups, *kernel) and
y (batch, outputs, *space') by  y[n,k,o] = Σ_c,j x[n,c, stride·o - padding + dilation·j] w[k,c,j],
where x is zero outside its bounds. `correlation` computes y, `correlation_input` the cotangent of x
(the transposed convolution of deep learning), and `correlation_kernel` the cotangent of w: the
gradients of each are the other two. Deep learning calls `correlation` a convolution;
`mm.signal.convolve` reverses the kernel first.

The attribute `transforms` says what may compute the sums, whose rounding errors then are others:

"none"    sums of products alone
"tiles"   in addition Winograd's and Fourier transforms of a worker's part; for layers of networks
"arrays"  in addition the spectra of whole arrays

The gradients have the same attribute.

Sums of products of half types are float32, as those of matrix products are; the functions below
round them to the operands' type.

Batch, channels, outputs and space may all be split over workers. A segment of y depends on the
segment of x that the kernel covers: the split of x derives from the split of y, with a halo of the
kernel's length. `correlation_input` derives the split of y from the split of x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Literal, TypeAlias

from magmath.core.dtypes import DType, compute_dtype
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Operation, Shape, apply
from magmath.graph.operation import Gradients, Line, MemoryOrder
from magmath.layout import Layout, Split
from magmath.ops.conv import convolution_kernels as kernels
from magmath.ops.conv.window_ranges import inputs_of_windows, window_counts, windows_of_inputs
from magmath.ops.elementwise import astype
from magmath.ops.fft.fourier import COMPLEX_OF, REAL_OF, fft, fft_of_real, fft_to_real
from magmath.ops.host_fallback import floats_on_device
from magmath.ops.index_letters import LETTERS
from magmath.ops.slicing import padded, reversed_along, slice_along
from magmath.ops.type_rules import require_kind

Numbers: TypeAlias = tuple[int, ...]
Transforms: TypeAlias = Literal["none", "tiles", "arrays"]

_N, _C, _K = tuple(LETTERS[:3])  # batch, channels, outputs; the letters after these are space
_SPACE = LETTERS[3:]


# shapes -----------------------------------------------------------------------------------------


def _check(name: str, a: Node, b: Node, *, fits: bool) -> None:
    require_kind(name, "numeric", a.dtype)
    if a.dtype is not b.dtype:
        raise DTypeError(
            f"{name}: operands have types {a.dtype} and {b.dtype}; convert one with mm.astype"
        )
    if not fits:
        raise ShapeError(f"{name}: operands of shapes {a.shape} and {b.shape} do not fit")


def _result_dtype(operand: Node, attributes: Mapping[str, Any]) -> DType:
    """Return the type of a result: for half types float32, in which workers combine their parts,
    unless `fold_epilogues` has folded the conversion back."""
    return attributes.get("dtype") or compute_dtype(operand.dtype)


def _correlation_infer(
    x: Node, w: Node, *more: Node, groups: int, stride: Numbers, **attributes: Any
) -> tuple[Shape, DType]:
    fits = x.ndim == w.ndim == len(stride) + 2 and x.shape[1] == w.shape[1] * groups
    fits = fits and len(more) == sum(
        attributes.get(name, False) for name in kernels.OPTIONAL_OPERANDS
    )
    _check("correlation", x, w, fits=fits and w.shape[0] % groups == 0 and min(w.shape[2:]) > 0)
    for d, n in enumerate(x.shape[2:]):
        (low, high), dilation = attributes["padding"][d], attributes["dilation"][d]
        reach = dilation * (w.shape[2 + d] - 1)
        if n + low + high <= reach:
            raise ShapeError(
                f"correlation: the kernel of shape {w.shape[2:]} reaches over {reach + 1} elements "
                f"of dimension {d}, which has {n} and padding {low} and {high}"
                "; use larger images, a smaller kernel or more padding"
            )
    space = window_counts(x.shape[2:], w.shape[2:], {**attributes, "stride": stride})
    return (x.shape[0], w.shape[0], *space), _result_dtype(x, attributes)


def _input_infer(
    y: Node, w: Node, *, space: Numbers, groups: int, **attributes: Any
) -> tuple[Shape, DType]:
    _check("correlation_input", y, w, fits=y.ndim == w.ndim and y.shape[1] == w.shape[0])
    return (y.shape[0], w.shape[1] * groups, *space), _result_dtype(y, attributes)


def _kernel_infer(
    x: Node, y: Node, *, kernel: Numbers, groups: int, **attributes: Any
) -> tuple[Shape, DType]:
    _check("correlation_kernel", x, y, fits=x.ndim == y.ndim and x.shape[0] == y.shape[0])
    return (y.shape[1], x.shape[1] // groups, *kernel), _result_dtype(x, attributes)


# index notation and splits ----------------------------------------------------------------------


def _letters(node: Node, channels: int) -> tuple[str, str, str]:
    """Return the letters of the channels of x, w and y."""
    groups = node.attributes["groups"]
    if groups == 1:
        return _C, _K + _C, _K
    if groups == channels:  # the split of the outputs derives from the split of the channels
        return _C, _C.upper() + ".", _C.upper()
    return ".", "..", "."


def _correlation_axes(node: Node) -> str:
    space = _SPACE[: node.ndim - 2]
    x, w, y = _letters(node, node.inputs[0].shape[1])
    of_y = f"{_N}{y}{space}"
    more = {"frozen": "", "bias": f".{y}{'.' * len(space)}", "residual": of_y}
    operands = [f"{_N}{x}{space.upper()}", f"{w}{'.' * len(space)}"]
    epilogue = ("bias", "residual", "activation")
    folded = any(node.attributes.get(name) for name in epilogue)
    if folded and y == _K:  # an epilogue must not apply to each partial sum
        operands = [text.replace(_C, ".") for text in operands]
    operands += [more[name] for name in kernels.OPTIONAL_OPERANDS if node.attributes.get(name)]
    return f"{','.join(operands)}->{of_y}"


def _input_axes(node: Node) -> str:
    space = _SPACE[: node.ndim - 2]
    x, w, y = _letters(node, node.shape[1])
    return f"{_N}{y}{space.upper()},{w}{'.' * len(space)}->{_N}{x}{space}"


def _kernel_axes(node: Node) -> str:
    space = _SPACE[: node.ndim - 2]
    x, w, y = _letters(node, node.inputs[0].shape[1])
    return f"{_N}{x}{space.upper()},{_N}{y}{space}->{w}{'.' * len(space)}"


def _derived_split(node: Node, letter: str, split: Split, operand: int | None) -> Split | None:
    if letter == _C:
        outputs = node.shape[0] if node.name == "correlation_kernel" else node.inputs[1].shape[0]
        return split.map_positions(lambda cut: cut * (outputs // node.attributes["groups"]))
    d = 2 + _SPACE.index(letter)
    extent = node.shape[d] if node.name == "correlation_kernel" else node.inputs[1].shape[d]
    needed = windows_of_inputs if node.name == "correlation_input" else inputs_of_windows
    return split.with_halo(needed(node.attributes, d - 2, extent), node.inputs[0].shape[d])


def _flops(kernel: Shape, y: Shape) -> float:
    """Return two flops for each element of y and each kernel element that contributes to it."""
    return 2.0 * prod(y) * prod(kernel[1:])


def _channels_last(x: Node) -> MemoryOrder | None:
    """Return the memory order with adjacent channels for images and volumes."""
    return (0, *range(2, x.ndim), 1) if x.ndim in (4, 5) and x.dtype.is_floating else None


def _map_orders(node: Node) -> Sequence[MemoryOrder | None]:
    """Prefer adjacent channels in the maps; the kernel w, the second operand, has few elements."""
    more = [_channels_last(x) if x.shape == node.shape else None for x in node.inputs[2:]]
    return _channels_last(node.inputs[0]), None, *more, _channels_last(node)


def _kernel_orders(node: Node) -> Sequence[MemoryOrder | None]:
    return _channels_last(node.inputs[0]), _channels_last(node.inputs[1]), None


def _efficiency(node: Node, shape: Shape) -> float:
    """Return the share of full speed: few outputs use the vector registers badly.

    The same is true for few columns of a matrix product.
    """
    outputs = shape[0] if node.name == "correlation_kernel" else shape[1]
    return (outputs + 1.0) / (outputs + 16.0)


# gradients --------------------------------------------------------------------------------------


def _shared_attributes(node: Node) -> dict[str, Any]:
    names = ("stride", "padding", "dilation", "groups", "transforms")
    return {name: node.attributes[name] for name in names}


def _correlation_vjp(node: Node, g: Node) -> Gradients:
    (x, w), g = node.inputs, _cotangent(node, g)
    return (
        _rounded(CORRELATION_INPUT, g, w, space=x.shape[2:], **_shared_attributes(node)),
        _rounded(CORRELATION_KERNEL, x, g, kernel=w.shape[2:], **_shared_attributes(node)),
    )


def _input_vjp(node: Node, g: Node) -> Gradients:
    (y, w), g = node.inputs, _cotangent(node, g)
    return (
        _first_windows(node, g, w, y.shape[2:]),
        _rounded(CORRELATION_KERNEL, g, y, kernel=w.shape[2:], **_shared_attributes(node)),
    )


def _kernel_vjp(node: Node, g: Node) -> Gradients:
    (x, y), g = node.inputs, _cotangent(node, g)
    return (
        _rounded(CORRELATION_INPUT, y, g, space=x.shape[2:], **_shared_attributes(node)),
        _first_windows(node, x, g, y.shape[2:]),
    )


def _cotangent(node: Node, g: Node) -> Node:
    """Return a cotangent in the type of the operands: the result is rounded to it."""
    return astype(g, node.inputs[0].dtype)


def _first_windows(node: Node, x: Node, w: Node, space: Shape) -> Node:
    """Return the correlation in `space` windows of each dimension. Images with elements added at
    their end (`output_padding`) may have more."""
    y = _rounded(CORRELATION, x, w, **_shared_attributes(node))
    for d, extent in enumerate(space):
        y = slice_along(y, 2 + d, 0, extent)
    return y


# correlation by Fourier transforms --------------------------------------------------------------


def _correlation_decompositions(node: Node, layouts: Sequence[Layout]) -> list[Node]:
    """Return the product of spectra, for one signal and one kernel, if `transforms` permits it.

    The result has other rounding errors than the sum of products.
    """
    x, w, *_ = node.inputs
    attributes = node.attributes
    is_single = x.shape[:2] == w.shape[:2] == (1, 1)
    is_dense = set(attributes["stride"]) == set(attributes["dilation"]) == {1}
    is_within = all(
        max(pads) < k for pads, k in zip(attributes["padding"], w.shape[2:], strict=True)
    )
    has_transform = x.dtype in (*COMPLEX_OF, *REAL_OF)
    can_transform = is_single and is_dense and is_within and has_transform
    if attributes["transforms"] != "arrays" or not can_transform:
        return []
    return [by_spectra(node)]


def by_spectra(node: Node) -> Node:
    """Return the correlation of one signal with one kernel as the product of their spectra."""
    from scipy.fft import next_fast_len

    x, w = node.inputs[:2]
    kernel = w.shape[2:]
    flipped = reversed_along(w, range(2, w.ndim))
    full = [n + k - 1 for n, k in zip(x.shape[2:], kernel, strict=True)]
    extents = tuple(next_fast_len(n, real=x.dtype.is_floating) for n in full)
    result = _convolved(x, flipped, extents)
    for d, k in enumerate(kernel):
        start = k - 1 - node.attributes["padding"][d][0]
        result = slice_along(result, 2 + d, start, start + node.shape[2 + d])
    return result.at_line(node.line)


def _convolved(x: Node, w: Node, extents: Shape) -> Node:
    """Return the circular convolution over space of x and w, zero-padded to these extents."""
    shape, start = (1, 1, *extents), (0,) * x.ndim
    x, w = padded(x, shape, start), padded(w, shape, start)
    space, last = tuple(range(2, x.ndim)), x.ndim - 1
    if not x.dtype.is_floating:
        of_x, of_w = [fft(a, space, inverse=False, norm="backward") for a in (x, w)]
        return fft(of_x * of_w, space, inverse=True, norm="backward")
    halves = [fft_of_real(a, last, inverse=False, norm="backward") for a in (x, w)]
    of_x, of_w = [fft(half, space[:-1], inverse=False, norm="backward") for half in halves]
    half = fft(of_x * of_w, space[:-1], inverse=True, norm="backward")
    return fft_to_real(half, last, extents[-1], inverse=True, norm="backward")


# the records ------------------------------------------------------------------------------------

CORRELATION: Operation = Operation(
    name="correlation",
    infer=_correlation_infer,
    axes=_correlation_axes,
    reduction="sum",
    vjp=_correlation_vjp,
    kernel=floats_on_device(kernels.bind_correlation),
    native=None,
    reference=kernels.correlation_reference,
    numpy_function=kernels.numpy_correlation,
    flops=lambda node: _flops(node.inputs[1].shape, node.shape),
    efficiency=_efficiency,
    decompositions=_correlation_decompositions,
    derived_split=_derived_split,
    memory_orders=_map_orders,
    epilogues=frozenset({"convert", "bias", "residual", "relu"}),
    bias_axis=1,
)

CORRELATION_INPUT: Operation = Operation(
    name="correlation_input",
    infer=_input_infer,
    axes=_input_axes,
    reduction="sum",
    vjp=_input_vjp,
    kernel=floats_on_device(kernels.bind_input),
    native=None,
    reference=kernels.input_reference,
    flops=lambda node: _flops(node.inputs[1].shape, node.inputs[0].shape),
    efficiency=_efficiency,
    derived_split=_derived_split,
    memory_orders=_map_orders,
    epilogues=frozenset({"convert"}),
)

CORRELATION_KERNEL: Operation = Operation(
    name="correlation_kernel",
    infer=_kernel_infer,
    axes=_kernel_axes,
    reduction="sum",
    vjp=_kernel_vjp,
    kernel=floats_on_device(kernels.bind_kernel),
    native=None,
    reference=kernels.kernel_reference,
    flops=lambda node: _flops(node.shape, node.inputs[1].shape),
    efficiency=_efficiency,
    derived_split=_derived_split,
    memory_orders=_kernel_orders,
    epilogues=frozenset({"convert"}),
)


def _rounded(record: Operation, a: Node, b: Node, *, line: Line = None, **attributes: Any) -> Node:
    """Return the result of an operation, rounded to the operands' type once."""
    return astype(apply(record, a, b, line=line, **attributes), a.dtype)


def correlation(
    x: Node,
    w: Node,
    *,
    stride: Numbers,
    padding: tuple[tuple[int, int], ...],
    dilation: Numbers,
    groups: int = 1,
    transforms: Transforms = "tiles",
    line: Line = None,
) -> Node:
    """Return y of the module's equation."""
    return _rounded(
        CORRELATION, x, w, stride=stride, padding=padding, dilation=dilation, groups=groups,
        transforms=transforms, line=line,
    )  # fmt: skip


def correlation_input(
    y: Node,
    w: Node,
    *,
    space: Shape,
    stride: Numbers,
    padding: tuple[tuple[int, int], ...],
    dilation: Numbers,
    groups: int = 1,
    line: Line = None,
) -> Node:
    """Return the cotangent of x, of these spatial extents, for the cotangent y."""
    return _rounded(
        CORRELATION_INPUT, y, w, space=space, stride=stride, padding=padding, dilation=dilation,
        groups=groups, transforms="tiles", line=line,
    )  # fmt: skip


OPERATIONS = {
    record.name: record for record in (CORRELATION, CORRELATION_INPUT, CORRELATION_KERNEL)
}
