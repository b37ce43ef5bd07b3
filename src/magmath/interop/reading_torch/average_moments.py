"""PyTorch's batch normalization with average moments, written so that `torch.export` records it.

With `momentum=None` PyTorch reads the number of batches as a Python number, which `torch.export`
refuses. Here it is a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def average_moments_of_tensors(module: torch.nn.Module) -> Iterator[None]:
    """Within this block, batch normalization of the module averages moments without numbers."""
    averaging = [
        part
        for part in module.modules()
        if isinstance(part, _BatchNorm) and part.track_running_stats and part.momentum is None
    ]
    for part in averaging:
        part.forward = partial(_forward, part)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for part in averaging:
            del part.forward


def _forward(norm: _BatchNorm, x: torch.Tensor) -> torch.Tensor:
    if not norm.training:
        return type(norm).forward(norm, x)
    assert norm.num_batches_tracked is not None
    norm.num_batches_tracked.add_(1)
    axes, constant = [0, *range(2, x.ndim)], x.detach()
    for running, value in (
        (norm.running_mean, constant.mean(axes)), (norm.running_var, constant.var(axes))
    ):  # fmt: skip
        assert running is not None
        running.add_((value - running) / norm.num_batches_tracked.to(running.dtype))
    return torch.nn.functional.batch_norm(
        x, None, None, norm.weight, norm.bias, True, 0.0, norm.eps
    )
