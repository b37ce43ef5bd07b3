"""torch's convolutions (oneDNN, cuDNN), and two variants: with operands in channels-last order, and
in float32 for half types for which the processor has no instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv import vector_correlation
from magmath.kernels.conv.batch_parts import batch_parts
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.padded_input import native_padding, needed_elements, padded_input
from magmath.kernels.epilogue import Index, blocks, finish
from magmath.kernels.half_instructions import has_instructions

Conversion = Callable[[torch.Tensor], torch.Tensor]
"""Returns a tensor in the memory order in which torch receives it."""


def can_bind(problem: ConvolutionProblem) -> bool:
    """Return True unless another candidate is faster by orders of magnitude."""
    return _has_instructions(problem) and not vector_correlation.can_bind(problem)


def bind(problem: ConvolutionProblem, bind_product: object) -> BoundCall:
    """Return a bound call on the operands in their memory order."""
    return _bind(problem, _unchanged)


def can_bind_channels_last(problem: ConvolutionProblem) -> bool:
    """Return True for images of two dimensions."""
    return problem.x.ndim == 4 and _has_instructions(problem)


def _has_instructions(problem: ConvolutionProblem) -> bool:
    """Return True if the processor computes the type, and torch has a form for the result's."""
    return not problem.is_widening and has_instructions(problem.x)


def bind_channels_last(problem: ConvolutionProblem, bind_product: object) -> BoundCall:
    """Return a bound call that converts the operands to channels-last order."""
    return _bind(problem, _to_channels_last)


def channels_last_workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of the converted operands and result."""
    return sum(tensor.nbytes for tensor in (problem.x, problem.w, problem.y))


def can_bind_widened(problem: ConvolutionProblem) -> bool:
    """Return True for all problems of half types on a processor, and for those whose result is
    float32: torch rounds other results to the half type."""
    return problem.x.is_cpu or problem.is_widening


def bind_widened(problem: ConvolutionProblem, bind_product: object) -> BoundCall:
    """Return a bound call that computes on float32 copies."""
    wide = replace(problem, x=_wide(problem.x), w=_wide(problem.w), y=_wide(problem.y))
    pairs = zip(wide.operands, problem.operands, strict=True)
    calls: list[BoundCall] = [partial(to.copy_, source) for to, source in pairs]
    calls.append(_bind(wide, _unchanged))
    if wide.out is not problem.out:
        calls.append(partial(problem.out.copy_, wide.out))
    return sequence(*calls)


def widened_workspace(problem: ConvolutionProblem) -> int:
    """Return the bytes of the float32 copies."""
    return 4 * sum(tensor.numel() for tensor in (problem.x, problem.w, problem.y))


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return x if it is float32, otherwise an empty float32 tensor of its shape and memory
    order."""
    return x if x.dtype == torch.float32 else torch.empty_like(x, dtype=torch.float32)


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _to_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _bind(problem: ConvolutionProblem, convert: Conversion) -> BoundCall:
    binders = {"forward": _bind_forward, "data": _bind_data, "filter": _bind_filter}
    return binders[problem.direction](problem, convert)


def _bilinear(
    function: Callable[..., torch.Tensor], a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Return function(a, b), which is bilinear and real, extended to complex numbers."""
    if not a.is_complex():
        return function(a, b)
    real = function(a.real, b.real) - function(a.imag, b.imag)
    return torch.complex(real, function(a.real, b.imag) + function(a.imag, b.real))


def _bind_forward(problem: ConvolutionProblem, convert: Conversion) -> BoundCall:
    padded, y, w, epilogue = padded_input(problem), problem.y, problem.w, problem.epilogue
    bias = None
    if epilogue.bias is not None and not w.is_complex():
        bias, epilogue = epilogue.bias.reshape(-1), replace(epilogue, bias=None)
    whole: Sequence[Index] = [(slice(None),)]
    parts = [
        (padded.tensor[i], y[i], epilogue.of(i), blocks(y[i]) if epilogue else whole)
        for i in _parts(problem)
    ]

    def correlated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            convert(x), convert(w), bias, problem.stride, padded.padding, problem.dilation,
            False, [0] * len(padded.padding), problem.groups,
        )  # fmt: skip
        return result

    def run() -> None:
        for x, out, part_epilogue, areas in parts:
            finish(_bilinear(correlated, x, w), out, part_epilogue, areas)

    return sequence(padded.fill, run)


def _bind_data(problem: ConvolutionProblem, convert: Conversion) -> BoundCall:
    """Bind the transposed convolution, by the function that computes x alone if torch supplies
    the padding."""
    padding = native_padding(problem)
    if padding is None:
        return _bind_padded_data(problem, convert)
    x, w, y = problem.x, problem.w, problem.y
    like = x.real if x.is_complex() else x  # of which torch reads the shape alone

    def contributed(y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        part: torch.Tensor = torch.ops.aten.convolution_backward(
            convert(y), like, convert(w), None, problem.stride, padding, problem.dilation, False,
            [0] * len(padding), problem.groups, [True, False, False],
        )[0]  # fmt: skip
        return part

    return lambda: x.copy_(_bilinear(contributed, y, w))


def _bind_padded_data(problem: ConvolutionProblem, convert: Conversion) -> BoundCall:
    """Bind the transposed convolution, whose whole result is the range of x that y needs."""
    x, w, y = problem.x, problem.w, problem.y
    needed = needed_elements(problem)
    target, no_padding = x[needed.in_stored], [0] * len(problem.stride)

    def transposed(y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            convert(y), convert(w), None, problem.stride, no_padding, problem.dilation, True,
            no_padding, problem.groups,
        )  # fmt: skip
        return result

    parts = [(target[i], y[i]) for i in _parts(problem)]

    def run() -> None:
        for out, cotangents in parts:
            out.copy_(_bilinear(transposed, cotangents, w)[needed.in_needed])

    return run if target.shape == x.shape else sequence(x.zero_, run)


def _bind_filter(problem: ConvolutionProblem, convert: Conversion) -> BoundCall:
    padded, y, w = padded_input(problem), problem.y, problem.w
    x, stride = padded.tensor, problem.stride
    like = w.real if w.is_complex() else w
    if set(w.shape[2:]) == {1} and not any(padded.padding):
        # oneDNN 3.12 writes beyond its workspace for 2 to 6 channels, one thread, strides over 1
        x = x[(slice(None), slice(None), *[slice(None, None, step) for step in stride])]
        stride = (1,) * len(stride)

    def contributed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        part: torch.Tensor = torch.ops.aten.convolution_backward(
            convert(y), convert(x), convert(like), None, stride, padded.padding,
            problem.dilation, False, [0] * len(padded.padding), problem.groups,
            [False, True, False],
        )[1]  # fmt: skip
        return part

    parts = [(x[i], y[i]) for i in _parts(problem)]
    if not parts:
        return w.zero_
    first, *others = parts

    def run() -> None:
        w.copy_(_bilinear(contributed, *first))
        for x, cotangents in others:
            w.add_(_bilinear(contributed, x, cotangents))

    return sequence(padded.fill, run)


def _parts(problem: ConvolutionProblem) -> Sequence[slice]:
    """Return the parts of the batch that torch computes one after the other.

    Each part converts the filters to oneDNN's order, so it has several times their bytes. A sum of
    half-precision filters over parts would round in each.
    """
    x, w, y = problem.x, problem.w, problem.y
    if (problem.direction == "filter" and w.itemsize < 4) or not x.is_cpu:
        return [slice(None)]
    return batch_parts(len(y), max(x.nbytes, y.nbytes), 8 * w.nbytes)
