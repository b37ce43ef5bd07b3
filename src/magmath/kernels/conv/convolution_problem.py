"""The local convolution that candidates receive: one relation between x, w and y, three passes.

    y[n, k, o] = Σ_c,j x[n, c, offset + stride·o + dilation·j] w[k, c, j]

where x is zero outside its bounds, for tensors x (batch, channels, *space), w (outputs,
channels / groups, *kernel) and y (batch, outputs, *space'). The pass "forward" computes y, "data"
the cotangent of x from y and w, "filter" the cotangent of w from x and y. `offset` contains the
padding, and the positions of a worker's tiles within the whole arrays.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final, final

import torch

from magmath.kernels.dtype_names import dtype_name
from magmath.kernels.epilogue import NO_EPILOGUE, Epilogue

PASSES: Final = ("forward", "data", "filter")


@final
@dataclass(frozen=True, slots=True)
class ConvolutionProblem:
    """One pass of a convolution on local tensors of one type and device; its result is overwritten.
    The result of half types may be float32.

    direction        "forward", "data" or "filter"
    x, w, y          the tensors of the module's equation, with any strides
    offset           for each spatial dimension, the element of x under the first element of w at
                     the first element of y; negative in the padding
    stride, dilation, groups    of the module's equation
    epilogue         what is applied to the result of the pass "forward"
    content_id       a 0-d tensor whose value is the same in two calls only if the array of all
                     filters is, of which w is the tile `w_tile`; None: unknown
    """

    direction: str
    x: torch.Tensor
    w: torch.Tensor
    y: torch.Tensor
    offset: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    epilogue: Epilogue = NO_EPILOGUE
    content_id: torch.Tensor | None = None
    w_tile: Hashable = None

    @property
    def out(self) -> torch.Tensor:
        """The result."""
        return {"forward": self.y, "data": self.x, "filter": self.w}[self.direction]

    @property
    def operands(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The two tensors that are read."""
        x, w, y = self.x, self.w, self.y
        return {"forward": (x, w), "data": (y, w), "filter": (x, y)}[self.direction]

    @property
    def is_widening(self) -> bool:
        """True for half types with a float32 result."""
        return self.out.dtype != self.operands[0].dtype

    @property
    def kernel(self) -> tuple[int, ...]:
        """The spatial extents of w."""
        return tuple(self.w.shape[2:])

    @property
    def flops(self) -> int:
        """Two for each element of y and each element of w that contributes to it."""
        return 2 * self.y.numel() * self.w[0].numel()

    def group(self, index: int) -> ConvolutionProblem:
        """Return the convolution of one group of channels, on views, without the epilogue."""
        x, w, y = (
            tensor.narrow(dim, index * (tensor.shape[dim] // self.groups), size)
            for tensor, dim, size in (
                (self.x, 1, self.x.shape[1] // self.groups),
                (self.w, 0, self.w.shape[0] // self.groups),
                (self.y, 1, self.y.shape[1] // self.groups),
            )
        )
        return replace(self, x=x, w=w, y=y, groups=1, epilogue=NO_EPILOGUE)


def order(tensor: torch.Tensor) -> str:
    """Return the memory order of the channels: "first" for contiguous NCHW, "last" for contiguous
    NHWC, the same "in part" if only the pixels of a row or the channels of a pixel are contiguous,
    otherwise "strided"."""
    if tensor.is_contiguous():
        return "first"
    if tensor.movedim(1, -1).is_contiguous():
        return "last"
    if tensor.stride(-1) == 1 or tensor.shape[-1] == 1:
        return "first, in part"
    return "last, in part" if tensor.stride(1) == 1 else "strided"


def _optional_words(problem: ConvolutionProblem) -> list[str]:
    """Return in words whether w is the same in most calls, and the epilogue."""
    epilogue = problem.epilogue
    words = ["frozen filters"] * (problem.content_id is not None)
    words += ["bias"] * (epilogue.bias is not None)
    if epilogue.residual is not None:
        words.append("accumulated" if epilogue.has_residual_in(problem.y) else "residual")
    return words + [epilogue.activation] * (epilogue.activation != "none")


def key(problem: ConvolutionProblem) -> str:
    """Return the form of a problem: pass, sizes, type, memory orders and device."""
    x, w, y = ("×".join(map(str, tensor.shape)) for tensor in (problem.x, problem.w, problem.y))
    details = [
        f"{name} {'×'.join(map(str, values))}"
        for name, values, usual in (
            ("offset", problem.offset, None),
            ("stride", problem.stride, 1),
            ("dilation", problem.dilation, 1),
            ("groups", (problem.groups,), 1),
        )
        if set(values) != {usual}
    ]
    orders = "/".join(order(tensor) for tensor in (problem.x, problem.w, problem.y))
    dtype = dtype_name(problem.operands[0].dtype)
    if problem.is_widening:
        dtype += f" in {dtype_name(problem.out.dtype)}"
    words = [f"convolution {problem.direction} {x} with {w} to {y}", *details, dtype, orders]
    words += _optional_words(problem)
    return ", ".join([*words, problem.x.device.type])
