"""The convolution plan of direct loops: the JOB that its compiled loops read, and its workspace.

The pass "data" is divided into phases (`kernels/conv/direct_loops.py`); a phase is a pair of phases
along the rows and along the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import sqrt
from typing import Final, final

import numpy as np
import torch

from magmath.core.byte_sizes import round_up
from magmath.core.cpu import PAGE, second_level_cache
from magmath.kernels.conv.convolution_problem import ConvolutionProblem
from magmath.kernels.conv.direct_job import JOB, PHASE, STARTED, WIDTH
from magmath.kernels.conv.image_views import view_of
from magmath.kernels.conv.plan_runs import ConvolutionPlan, job_record
from magmath.kernels.gemm.microkernel import ROWS, VECTORS

FEW_CHANNELS: Final = 16  # below, the elements of a filter row are read as one
DEPTH: Final = 512  # summands that are added at once, so that their filters stay in a cache
BLOCK_PIXELS: Final = 256
SUMS_BYTES: Final = second_level_cache() * 3 // 4  # of gradients of filters that stay in it


@final
@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """A phase along one dimension: pixels start, start + step, … of the target, and for each filter
    element of the phase the pixel of the source under it at `start`."""

    start: int
    count: int
    offsets: tuple[tuple[int, int], ...]  # (pixel, filter element), in order of pixels


def phase_axes(problem: ConvolutionProblem, d: int) -> list[PhaseAxis]:
    """Return the phases along a spatial dimension."""
    start, stride, dilation = problem.offset[d], problem.stride[d], problem.dilation[d]
    elements = range(problem.kernel[d])
    if problem.direction != "data":
        taps = tuple([(start + dilation * j, j) for j in elements])
        return [PhaseAxis(0, problem.y.shape[2 + d], taps)]
    extent, axes = problem.x.shape[2 + d], []
    for first in range(min(stride, extent)):
        distances = [(first - start - dilation * j, j) for j in elements]
        taps = tuple(sorted((n // stride, j) for n, j in distances if n % stride == 0))
        axes.append(PhaseAxis(first, -(-(extent - first) // stride), taps))
    return axes


@final
class DirectPlan(ConvolutionPlan):
    """The JOB of a problem without groups, and the sizes of its workspace."""

    def __init__(self, problem: ConvolutionProblem) -> None:
        self._problem = problem  # the addresses hold no reference
        self.threads = torch.get_num_threads()
        is_data = problem.direction == "data"
        source, target = (problem.y, problem.x) if is_data else (problem.x, problem.y)
        self._images, self._channels, self._outputs = len(source), source.shape[1], target.shape[1]
        self._phases = list(product(phase_axes(problem, 0), phase_axes(problem, 1)))
        self._step = (1, 1) if is_data else problem.stride
        self._merges = self._can_merge(source)
        self._in_strips = self._merges or source.stride(1) != 1
        self._vectors = -(-self._outputs // WIDTH)
        self._groups = -(-self._vectors // VECTORS)
        self._panel_columns = min(self._vectors, VECTORS) * WIDTH
        self._block_pixels = self._pixels_of_block()
        values = {
            **self._addresses(source, target), **self._filter_values(),
            **self._strip_values(), **self._phase_values(),
            "source_channels": self._channels, "outputs": self._outputs, "depth": self._depth,
            "output_vectors": self._vectors, "output_groups": self._groups,
            "step_y": self._step[0], "step_x": self._step[1],
            "target_step_y": problem.stride[0] if is_data else 1,
            "target_step_x": problem.stride[1] if is_data else 1,
            "block_pixels": self._block_pixels,
        }  # fmt: skip
        values |= self._shares() if problem.direction == "filter" else self._chunks()
        values |= self._workspace_positions()
        self._job = job_record(JOB, values)
        self.address = int(self._job.ctypes.data)

    # forms of the loops

    def _can_merge(self, source: torch.Tensor) -> bool:
        """Return True if the elements of a filter row cover adjacent numbers of a strip.

        Adjacent channels are copied to the strip by vectors, which end in zeros: a second vector
        would overwrite the first channels of the next pixel.
        """
        if self._channels >= FEW_CHANNELS or len(self._phases) > 1:
            return False
        if self._channels > WIDTH and source.stride(1) == 1:
            return False
        columns = [pixel for pixel, _ in self._phases[0][1].offsets]
        return len(columns) > 1 and columns == [*range(columns[0], columns[0] + len(columns))]

    @property
    def _depth(self) -> int:
        """The numbers of a filter element, or of a row of them."""
        return self._channels * (len(self._phases[0][1].offsets) if self._merges else 1)

    def _elements(self, y: PhaseAxis, x: PhaseAxis) -> list[tuple[int, int]]:
        """Return the pixels under the filter elements, or rows of them, of a phase."""
        columns = x.offsets[:1] if self._merges else x.offsets
        return [(i, j) for i, _ in y.offsets for j, _ in columns]

    def _pixels_of_block(self) -> int:
        """Return the pixels of a block: equal blocks, or whole rows if there are strips."""
        pixels = max(y.count * x.count for y, x in self._phases)
        if self._in_strips:
            columns = max(x.count for _, x in self._phases)
            rows = pixels // columns
            blocks = -(-rows // max(1, BLOCK_PIXELS // columns))
            return -(-rows // blocks) * columns
        pixels *= self._images
        return -(-pixels // (-(-pixels // BLOCK_PIXELS)) // ROWS) * ROWS

    # the words of the job

    def _addresses(self, source: torch.Tensor, target: torch.Tensor) -> dict[str, int]:
        problem, epilogue = self._problem, self._problem.epilogue
        self._views = [view_of(source), view_of(target)]
        self._zeros = np.zeros(round_up(self._channels, WIDTH), np.float32)
        bias, residual = epilogue.bias, epilogue.residual
        self._bias = None if bias is None else bias.reshape(-1)
        return {
            "source": self._views[0].ctypes.data, "target": self._views[1].ctypes.data,
            "filters": problem.w.data_ptr(), "zeros": self._zeros.ctypes.data,
            "bias": 0 if self._bias is None else self._bias.data_ptr(),
            "accumulate": int(residual is not None),
            "residual": 0 if residual is None else residual.data_ptr() - target.data_ptr(),
            "relu": int(epilogue.activation == "relu"),
        }  # fmt: skip

    def _filter_values(self) -> dict[str, int]:
        """Return the description of the filters, and the rows of the packed ones."""
        outputs, channels, *kernel = self._problem.w.shape
        taps = kernel[0] * kernel[1]
        rows, row = {}, 0
        for y, x in self._phases:
            for i, j in product(y.offsets, x.offsets):
                rows[i[1] * kernel[1] + j[1]] = row
                row += self._channels
        for tap in set(range(taps)) - set(rows):  # reach no pixel
            rows[tap] = row
            row += self._channels
        self._rows = np.array([rows[tap] for tap in range(taps)], np.int64)
        values = {"taps": taps, "places": self._rows.ctypes.data, "packed_rows": row}
        self.shared_bytes = 4 * row * round_up(self._outputs, WIDTH)
        if self._problem.direction == "data":
            units, run = (1, outputs) if taps == 1 else (outputs, taps)
            of_unit = channels * taps
            return values | {"of_filter": taps, "units": units, "run": run, "of_unit": of_unit}
        return values | {"of_filter": channels * taps, "units": 1, "run": channels * taps}

    def _strip_values(self) -> dict[str, int]:
        """Return the description of strips, without that of the address."""
        rows = [pixel for y, _ in self._phases for pixel, _ in y.offsets] or [0]
        columns = [pixel for _, x in self._phases for pixel, _ in x.offsets] or [0]
        count = max(x.count for _, x in self._phases)
        pitch = self._channels if self._merges else round_up(self._channels, WIDTH)
        high = max(rows) - min(rows) + 1
        wide = (count - 1) * self._step[1] + max(columns) - min(columns) + 1
        spanned = 1 + -(-self._block_pixels // min(x.count for _, x in self._phases))
        spanned = min(spanned, max(y.count for y, _ in self._phases))
        self._strip_bytes = 0
        if self._in_strips:
            lines = (spanned - 1) * self._step[0] + high
            self._strip_bytes = 4 * (lines * wide * pitch + WIDTH)
        return {
            "strip_rows": high if self._in_strips else 0, "strip_columns": wide,
            "strip_top": min(rows), "strip_left": min(columns), "pitch": pitch,
        }  # fmt: skip

    def _phase_values(self) -> dict[str, int]:
        """Return the address of the phases, which the plan stores."""
        words: list[int] = []
        self._offsets, self._blocks, row = [], 0, 0
        for y, x in self._phases:
            elements = self._elements(y, x)
            self._offsets.append(np.array([*elements, (0, 0)], np.int64))
            unit = y.count * x.count * (1 if self._in_strips else self._images)
            blocks = -(-unit // self._block_pixels)
            words += [
                y.start, x.start, y.count, x.count, len(elements), row,
                self._offsets[-1].ctypes.data, self._blocks, blocks, unit,
            ]  # fmt: skip
            row += len(elements) * self._depth
            self._blocks += blocks * (self._images if self._in_strips else 1)
        words += [0] * PHASE.index("first_block") + [self._blocks]
        self._words = np.array(words, np.int64)
        return {"phases": self._words.ctypes.data}

    def _chunks(self) -> dict[str, int]:
        """Return the division of the work, and of the summands."""
        parts = min(self._groups, -(-2 * self.threads // self._blocks)) if self.threads > 1 else 1
        return {
            "chunk_taps": max(1, DEPTH // self._depth), "chunk_parts": -(-self._depth // DEPTH),
            "parts": parts, "items": self._blocks * parts,
        }  # fmt: skip

    def _shares(self) -> dict[str, int]:
        """Return the division of the sums of gradients, and of the images."""
        taps = len(self._elements(*self._phases[0]))
        side = sqrt(SUMS_BYTES / (4 * taps))
        groups = min(self._groups, max(1, round(side / (VECTORS * WIDTH))))
        group_parts = -(-self._groups // groups)
        outputs = round_up(-(-self._outputs // group_parts), WIDTH)
        depth_parts = -(-self._depth // max(ROWS, int(SUMS_BYTES / (4 * taps * outputs))))
        items, shares = group_parts * depth_parts, 1
        if self.threads > 1:
            shares = min(self._blocks, -(-2 * self.threads // items))
        self.shared_bytes *= shares
        return {
            "shares": shares, "group_parts": group_parts, "depth_parts": depth_parts,
            "items": items * shares,
        }  # fmt: skip

    def _workspace_positions(self) -> dict[str, int]:
        """Return the positions of tables, panel and strip in the workspace of a thread."""
        taps = max(1, *[len(self._elements(y, x)) for y, x in self._phases])
        table = 8 * taps * self._block_pixels
        targets = 8 * self._block_pixels
        panel = round_up(table + targets, 64)
        strip = panel + 4 * self._block_pixels * self._panel_columns
        self._slot_bytes = round_up(strip + self._strip_bytes, PAGE)
        return {
            "targets_at": table, "panel_at": panel, "strip_at": strip,
            "slot_bytes": self._slot_bytes,
        }  # fmt: skip

    def start(self, memory: int, filters: int | None = None) -> None:
        start = round_up(memory, PAGE)
        shared = start + self.threads * self._slot_bytes
        if filters is not None:
            shared = round_up(filters, PAGE)
        self._job[:STARTED] = shared, shared, start, 0, 0, 0
