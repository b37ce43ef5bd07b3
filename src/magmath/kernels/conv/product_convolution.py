"""1×1 convolutions as matrix products of all pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_problem import ConvolutionProblem


def can_bind(problem: ConvolutionProblem) -> bool:
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


def bind(problem: ConvolutionProblem, bind_product: Callable[..., BoundCall]) -> BoundCall:
    """Return a bound call; `bind_product(out, a, b)` returns that of a product."""
    rows = _rows(problem)
    assert rows is not None
    x, y = rows
    if problem.direction == "filter":
        return _bind_filter(problem.w, x, y, bind_product)
    w = problem.w.flatten(1)  # (outputs, channels)
    is_forward = problem.direction == "forward"
    if x.ndim == 2:
        return bind_product(y, x, w.mT) if is_forward else bind_product(x, y, w)
    batch = w.expand(len(x), -1, -1)
    return bind_product(y, batch, x) if is_forward else bind_product(x, batch.mT, y)


def _bind_filter(
    w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, bind_product: Callable[..., BoundCall]
) -> BoundCall:
    """Bind the cotangent of w; for batches of images it is added image by image."""
    out = w.flatten(1) if w.is_contiguous() else torch.empty_like(w[..., 0, 0])
    if x.ndim == 2:
        calls = [bind_product(out, y.mT, x)]
    else:
        calls = [bind_product(out, y[0], x[0].mT)]
        calls += [bind_product(out, b, a.mT, beta=1.0) for a, b in zip(x[1:], y[1:], strict=True)]
    if not w.is_contiguous():
        calls.append(lambda: w.copy_(out.view(w.shape)))
    return sequence(*calls)
