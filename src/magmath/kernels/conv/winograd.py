"""Winograd convolution of float32 images with 3×3 and 5×5 filters, on the processor.

F(4×4, 3×3) needs a quarter of the multiplications of the direct sum, F(2×2, 3×3) four ninths; with
stride 2, F(4×4) needs nine sixteenths and F(3×3) 49 of 81. F(2×2, 5×5) needs 9 of 25
(`kernels/conv/winograd_forms.py`). The gradient with respect to the images is a convolution with
filters turned by 180°, whose inputs and outputs are exchanged; the gradient of the filters adds the
products of transformed images and cotangents over all tiles, and transforms the sum once. Frozen
filters, those of inference, are transformed once for each content id.

The results differ from the direct sum by rounding: at 128 channels and normal operands, the root
mean square error relative to that of the result is 4e-7 for F(2×2) and F(3×3), 1.5e-6 for F(4×4)
and 1.9e-6 for F(2×2, 5×5), against 2e-7 for the direct sum; tests check `ERROR_BOUND`. An infinity
or a NaN makes its whole tile NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, final

import torch

from magmath.core.call_sequence import sequence
from magmath.core.type_aliases import BoundCall
from magmath.kernels.conv.convolution_problem import PASSES, ConvolutionProblem
from magmath.kernels.conv.frozen_filters import frozen_filters
from magmath.kernels.conv.image_views import has_adjacent_numbers
from magmath.kernels.conv.plan_runs import frozen_call, run_plan
from magmath.kernels.conv.winograd_loops import code
from magmath.kernels.conv.winograd_plan import WinogradPlan
from magmath.kernels.conv.winograd_transforms import TAPS

MIN_CHANNELS: Final = 16  # of either side; below, the transforms cost more than the products save
MIN_TILES: Final = 8


@final
@dataclass(frozen=True)
class Method:
    """The algorithms for the three passes of a convolution: F(tile×tile, taps×taps) of a stride."""

    tile: int
    stride: int
    taps: int = TAPS

    @property
    def name(self) -> str:
        """The name of the candidate."""
        of_stride = f", stride {self.stride}" if self.stride > 1 else ""
        of_taps = f", {self.taps}×{self.taps} filters" if self.taps != TAPS else ""
        return f"winograd {self.tile}×{self.tile}{of_stride}{of_taps}"

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of all algorithms."""
        return tuple(dict.fromkeys(map(self.algorithm, PASSES)))

    def algorithm(self, direction: str) -> str:
        """Return the name of the algorithm for a pass."""
        if self.stride == 1:
            return f"{self.tile}" if self.taps == TAPS else f"{self.tile}_{self.taps}"
        return f"{self.tile}_{'transposed' if direction == 'data' else 'strided'}"


ERROR_BOUND: Final = {
    Method(4, 1): 4e-5, Method(2, 1): 8e-6, Method(4, 2): 8e-5, Method(3, 2): 1.6e-5,
    Method(2, 1, 5): 4e-5,
}  # fmt: skip
"""The methods, and the maximum error of an element relative to the root mean square of the result,
for normally distributed operands and at most 4,096 summands."""


def can_bind(problem: ConvolutionProblem, method: Method) -> bool:
    """Return True for problems that a method can compute and is likely to compute faster."""
    tensors = (problem.x, problem.w, problem.y)
    if problem.kernel != (method.taps, method.taps) or {*problem.stride} != {method.stride}:
        return False
    if {*problem.dilation} != {1} or problem.x.dtype != torch.float32:
        return False
    if not all(x.numel() for x in tensors):
        return False
    if not (has_adjacent_numbers(problem.x) and has_adjacent_numbers(problem.y)):
        return False
    channels = min(problem.w.shape[1], problem.w.shape[0] // problem.groups)
    return channels >= MIN_CHANNELS and _tile_count(problem.y, method.tile) >= MIN_TILES


def _tile_count(tensor: torch.Tensor, tile: int) -> int:
    rows, columns = (-(-extent // tile) for extent in tensor.shape[2:])
    return tensor.shape[0] * rows * columns


def workspace(problem: ConvolutionProblem, method: Method) -> int:
    """Return the bytes of memory that a call needs in addition to the operands."""
    return WinogradPlan(problem.group(0), method.algorithm(problem.direction)).nbytes


def bind(problem: ConvolutionProblem, method: Method) -> BoundCall:
    """Return a bound call that computes a problem by a method."""
    name = method.algorithm(problem.direction)
    return sequence(*[_bind_group(problem.group(i), name) for i in range(problem.groups)])


def _bind_group(problem: ConvolutionProblem, name: str) -> BoundCall:
    plan = WinogradPlan(problem, name)
    if problem.direction == "forward" and problem.content_id is not None:
        w = problem.w
        filters = frozen_filters(problem, ("winograd", name, tuple(w.shape), w.stride()))
        transform, correlate = map(code(name).address, ("transform_filters", "correlate"))
        return frozen_call(plan, filters, problem.content_id, transform, correlate)
    functions = ("weight_sums", "finish")
    if problem.direction != "filter":
        functions = ("transform_filters", "correlate")
    return partial(run_plan, plan, [code(name).address(function) for function in functions])
