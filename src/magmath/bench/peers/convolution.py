"""Convolutions of oneDNN, through torch."""

from __future__ import annotations

from typing import Any

from magmath.bench.peers.repeated import RepeatedContestant, Work, repeat_call
from magmath.bench.peers.service import Contestant, core_count


def operands(case: dict[str, Any]) -> list[Any]:
    """Return x, w and y of a case as tensors in its memory order, the same for every system."""
    import torch

    batch, channels, outputs, extent, stride, kernel = case["shape"]
    last = case["order"] == "channels-last"
    generator = torch.Generator().manual_seed(1)
    shapes = (
        (batch, channels, extent, extent),
        (outputs, channels, kernel, kernel),
        (batch, outputs, extent // stride, extent // stride),
    )
    order = torch.channels_last if last else torch.contiguous_format
    return [torch.randn(s, generator=generator).to(memory_format=order) for s in shapes]


def check(case: dict[str, Any], result: Any) -> float:
    """Return a number that is compared between systems."""
    return float(result.double().square().mean())


def onednn() -> Contestant:
    """Return torch's contestant, with all threads."""
    import torch

    torch.set_num_threads(core_count())

    def prepare(case: dict[str, Any]) -> Work:
        x, w, y = operands(case)
        stride, kernel = case["shape"][-2:]
        window = [stride] * 2, [kernel // 2] * 2, [1, 1], False, [0, 0], 1
        if case["direction"] == "forward":
            return repeat_call(lambda: torch.ops.aten.convolution(x, w, None, *window))
        index = ("data", "filter").index(case["direction"])
        mask = [index == 0, index == 1, False]
        backward = torch.ops.aten.convolution_backward
        return repeat_call(lambda: backward(y, x, w, None, *window, mask)[index])

    return RepeatedContestant({"torch": torch.__version__}, prepare, check)
