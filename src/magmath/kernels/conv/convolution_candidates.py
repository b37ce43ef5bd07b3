"""The candidates for a convolution on one device.

`kernels/dispatch/registry.py` lists the devices and types of each candidate, in order of
preference; `kernels/conv/convolution.py` chooses among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from magmath.codegen.background_build import compile_in_background
from magmath.core.type_aliases import ReadyCall
from magmath.kernels.conv import depthwise, direct, packed_convolution, vector_correlation, winograd
from magmath.kernels.conv.batch_parts import batch_parts
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.padded_input import PaddedInput, inside, symmetric_padding
from magmath.kernels.conv.winograd_loops import is_compiled
from magmath.kernels.dispatch.registry import Candidate, applies_epilogues
from magmath.kernels.epilogue import Index, blocks, finish
from magmath.kernels.gemm.gemm_candidates import sequence
from magmath.kernels.half_instructions import multiplies

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# torch: oneDNN, cuDNN -----------------------------------------------------------------------------


def _can_bind_torch(problem: ConvolutionProblem) -> bool:
    return multiplies(problem.x) and not _vectors_take(problem)


def _vectors_take(problem: ConvolutionProblem) -> bool:
    on_cpu = problem.x.device.type == "cpu" and problem.x.dtype in (torch.float32, torch.float64)
    return on_cpu and vector_correlation.can_bind(problem)


def _bilinear(function: Function, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return function(a, b), which is bilinear and real, extended to complex numbers."""
    if not a.is_complex():
        return function(a, b)
    real = function(a.real, b.real) - function(a.imag, b.imag)
    return torch.complex(real, function(a.real, b.imag) + function(a.imag, b.real))


def _unchanged(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _bind_torch(
    problem: ConvolutionProblem, inner: object, convert: Callable[..., torch.Tensor] = _unchanged
) -> ReadyCall:
    """Bind torch's convolution; `convert` changes the memory order of its operands."""
    bound = {"forward": _bind_forward, "data": _bind_data, "filter": _bind_filter}
    return bound[problem.direction](problem, convert)


def _bind_forward(problem: ConvolutionProblem, convert: Callable[..., torch.Tensor]) -> ReadyCall:
    around, y, w, epilogue = PaddedInput(problem), problem.y, problem.w, problem.epilogue
    bias = None
    if epilogue.bias is not None and not w.is_complex():
        bias, epilogue = epilogue.bias.reshape(-1), replace(epilogue, bias=None)
    whole: Sequence[Index] = [(slice(None),)]
    parts = [
        (around.tensor[i], y[i], epilogue.of(i), blocks(y[i]) if epilogue else whole)
        for i in _parts(problem)
    ]

    def correlated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            convert(x), convert(w), bias, problem.stride, around.padding, problem.dilation,
            False, [0] * len(around.padding), problem.groups,
        )  # fmt: skip
        return result

    def run() -> None:
        for x, out, own, areas in parts:
            finish(_bilinear(correlated, x, w), out, own, areas)

    return sequence(around.fill, run)


def _bind_data(problem: ConvolutionProblem, convert: Callable[..., torch.Tensor]) -> ReadyCall:
    """Bind the transposed convolution, by the function that computes x alone if torch supplies
    the padding."""
    padding = symmetric_padding(problem)
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


def _bind_padded_data(
    problem: ConvolutionProblem, convert: Callable[..., torch.Tensor]
) -> ReadyCall:
    """Bind the transposed convolution, whose whole result is the range of x that y needs."""
    x, w, y = problem.x, problem.w, problem.y
    there, here = inside(problem)
    nothing = [0] * len(problem.stride)

    def transposed(y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            convert(y), convert(w), None, problem.stride, nothing, problem.dilation, True, nothing,
            problem.groups,
        )  # fmt: skip
        return result

    parts = [(x[here][i], y[i]) for i in _parts(problem)]

    def run() -> None:
        for out, cotangents in parts:
            out.copy_(_bilinear(transposed, cotangents, w)[there])

    return run if x[here].shape == x.shape else sequence(x.zero_, run)


def _bind_filter(problem: ConvolutionProblem, convert: Callable[..., torch.Tensor]) -> ReadyCall:
    around, y, w = PaddedInput(problem), problem.y, problem.w
    like = w.real if w.is_complex() else w

    def contributed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        part: torch.Tensor = torch.ops.aten.convolution_backward(
            convert(y), convert(x), convert(like), None, problem.stride, around.padding,
            problem.dilation, False, [0] * len(around.padding), problem.groups,
            [False, True, False],
        )[1]  # fmt: skip
        return part

    parts = [(around.tensor[i], y[i]) for i in _parts(problem)]
    if not parts:
        return w.zero_
    first, *others = parts

    def run() -> None:
        w.copy_(_bilinear(contributed, *first))
        for x, cotangents in others:
            w.add_(_bilinear(contributed, x, cotangents))

    return sequence(around.fill, run)


def _parts(problem: ConvolutionProblem) -> Sequence[slice]:
    """Return the parts of the batch that torch computes one after the other.

    Each part converts the filters to oneDNN's order, so it has several times their bytes. A sum of
    half-precision filters over parts would round in each.
    """
    x, w, y = problem.x, problem.w, problem.y
    if (problem.direction == "filter" and w.itemsize < 4) or not x.is_cpu:
        return [slice(None)]
    return batch_parts(len(y), max(x.nbytes, y.nbytes), 8 * w.nbytes)


# in float32, for half types for which the processor has no instructions ---------------------------


def _any_half_problem(problem: ConvolutionProblem) -> bool:
    return True


def _bind_widened(problem: ConvolutionProblem, inner: object) -> ReadyCall:
    wide = replace(problem, x=_wide(problem.x), w=_wide(problem.w), y=_wide(problem.y))
    pairs = zip(wide.operands, problem.operands, strict=True)
    calls: list[ReadyCall] = [partial(to.copy_, source) for to, source in pairs]
    return sequence(*calls, _bind_torch(wide, inner), partial(problem.out.copy_, wide.out))


def _wide(x: torch.Tensor) -> torch.Tensor:
    """Return an empty float32 tensor of the shape and memory order of x."""
    return torch.empty_like(x, dtype=torch.float32)


def _widened_workspace(problem: ConvolutionProblem) -> int:
    return 4 * sum(tensor.numel() for tensor in (problem.x, problem.w, problem.y))


# the same with operands that are converted to channels-last order ---------------------------------


def _can_bind_channels_last(problem: ConvolutionProblem) -> bool:
    return problem.x.ndim == 4 and multiplies(problem.x)


def _to_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def _channels_last_workspace(problem: ConvolutionProblem) -> int:
    return sum(tensor.nbytes for tensor in (problem.x, problem.w, problem.y))


# Winograd -----------------------------------------------------------------------------------------


def _winograd(method: winograd.Method) -> Candidate:
    def is_ready() -> bool:
        missing = [name for name in method.algorithms if not is_compiled(name)]
        for name in missing:
            compile_in_background("magmath.kernels.conv.winograd_loops", name)
        return not missing

    return Candidate(
        method.name,
        partial(winograd.can_bind, method=method),
        lambda problem, inner: winograd.bind(problem, method),
        partial(winograd.workspace, method=method),
        is_ready,
    )


# depthwise ----------------------------------------------------------------------------------------


def _is_depthwise_ready() -> bool:
    if depthwise.CODE.is_cached():
        return True
    compile_in_background("magmath.kernels.conv.depthwise")
    return False


# 1×1 convolutions as products ---------------------------------------------------------------------


def _products_take(problem: ConvolutionProblem) -> bool:
    """Return True for filters of one element that cover each element of x once."""
    same = problem.x.shape[2:] == problem.y.shape[2:] and not any(problem.offset)
    single = {*problem.kernel, *problem.stride} == {1} and problem.groups == 1
    return same and single and problem.x.ndim == 4 and _rows(problem) is not None


def _rows(problem: ConvolutionProblem) -> Sequence[torch.Tensor] | None:
    """Return x and y as matrices (pixels, channels), or as batches (images, channels, pixels); None
    for other memory orders."""
    both = problem.x, problem.y
    if all(tensor.movedim(1, -1).is_contiguous() for tensor in both):
        return [tensor.movedim(1, -1).flatten(0, 2) for tensor in both]
    if all(tensor.is_contiguous() for tensor in both):
        return [tensor.flatten(2) for tensor in both]
    return None


def _bind_products(problem: ConvolutionProblem, inner: Callable[..., ReadyCall]) -> ReadyCall:
    rows = _rows(problem)
    assert rows is not None
    x, y = rows
    w = problem.w.flatten(1)  # (outputs, channels)
    if problem.direction == "filter":
        return _bind_filter_products(problem, inner, x, y)
    if x.ndim == 2:
        return inner(y, x, w.mT) if problem.direction == "forward" else inner(x, y, w)
    wide = w.expand(len(x), -1, -1)
    return inner(y, wide, x) if problem.direction == "forward" else inner(x, wide.mT, y)


def _bind_filter_products(
    problem: ConvolutionProblem, inner: Callable[..., ReadyCall], x: torch.Tensor, y: torch.Tensor
) -> ReadyCall:
    out = (
        problem.w.flatten(1)
        if problem.w.is_contiguous()
        else torch.empty_like(problem.w[..., 0, 0])
    )
    if x.ndim == 2:
        calls = [inner(out, y.mT, x)]
    else:
        calls = [inner(out, y[0], x[0].mT)]
        calls += [inner(out, b, a.mT, beta=1.0) for a, b in zip(x[1:], y[1:], strict=True)]
    if not problem.w.is_contiguous():
        calls.append(lambda: problem.w.copy_(out.view(problem.w.shape)))
    return sequence(*calls)


CANDIDATES: Mapping[str, Candidate] = {
    candidate.name: candidate
    for candidate in (
        Candidate("torch", _can_bind_torch, _bind_torch, fuses=applies_epilogues),
        Candidate(
            "dot products", _vectors_take, vector_correlation.bind, vector_correlation.workspace
        ),
        Candidate("widened", _any_half_problem, _bind_widened, _widened_workspace),
        Candidate(
            "channels-last",
            _can_bind_channels_last,
            partial(_bind_torch, convert=_to_channels_last),
            _channels_last_workspace,
            fuses=applies_epilogues,
        ),
        Candidate(
            "packed",
            packed_convolution.can_bind,
            packed_convolution.bind,
            packed_convolution.workspace,
            fuses=applies_epilogues,
        ),
        *map(_winograd, winograd.ERROR_BOUND),
        Candidate(
            "direct", direct.can_bind, direct.bind, direct.workspace, direct.is_ready, direct.fuses
        ),
        Candidate("depthwise", depthwise.can_bind, depthwise.bind, is_ready=_is_depthwise_ready),
        Candidate("products", _products_take, _bind_products),
    )
}
