"""CUDA graphs: the kernels of a step on a GPU, recorded once and then started by one call.

A kernel of a GPU takes a few microseconds to start from Python, often longer than it computes. The
first steps are bound calls, watched one by one for whether they let the host wait for the device
or measure candidates. Once none measures, the runs of instructions that only start work on the
device are recorded; those that wait, compute in host memory, or communicate remain bound calls
between the graphs. When fused kernels are compiled for them, one step checks these, and the graphs
are recorded again with those that give equal results.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, final

import torch

from magmath.core.type_aliases import BoundCall
from magmath.executor.bind import Binding
from magmath.executor.call_list import CallList
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.executor.step_executors import Executor
from magmath.kernels.dispatch.tuner import Measuring
from magmath.program.instructions import Call

if TYPE_CHECKING:
    from magmath.executor.fused_kernels import FusedKernel

logger = logging.getLogger(__name__)
MIN_RUNS: Final = 3
"""Runs of a binding, one step each, before its step is recorded."""
MIN_CALLS: Final = 2
"""Minimum instructions of a graph: one that replaces one call saves little."""
MAX_WATCHED: Final = 64
"""Maximum number of steps that are watched for measurements; then they remain bound calls."""


@final
class RecordedSteps(Executor):
    """Executes the steps of a run by graphs, once they are recorded."""

    name = "graphs"

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._recording = Recording(binding)

    def is_ready(self) -> bool:
        return True

    def start(self) -> None:
        self._binding.run_prologue()

    def run(self, steps: int) -> list[float]:
        values = list[float]()
        while steps and not self._recording.is_settled():
            self._recording.step()
            values += self._binding.emitted_now()
            steps -= 1
        return values + self._binding.replay(steps, self._recording.calls) if steps else values

    def close(self) -> None:
        pass


@final
class RecordedRuns:
    """Runs a program one step at a time, by graphs of the bindings that run again and again."""

    def run(self, binding: Binding) -> list[float]:
        """Run one step; return the scalars that it emits. Must be called in
        `without_fp_warnings`."""
        if binding.runs < MIN_RUNS:
            binding.runs += 1
            return binding.run_once(binding.step)
        if binding.recording is None:
            binding.recording = Recording(binding)
        recording: Recording = binding.recording
        if recording.is_settled():
            return binding.run_once(recording.calls)
        binding.prologue.run()
        recording.step()
        return binding.emitted_now()

    def close(self) -> None:
        """Do nothing: graphs end with their bindings."""


@final
class Recording:
    """The recording of a binding's step, in the steps that run meanwhile."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._watched = 0
        self._runs: list[range] = []
        """The instructions that can be recorded."""
        self._fused: Sequence[FusedKernel] | None = None
        """The kernels that are being compiled; None before that, and after they were checked."""
        self._is_watched = False
        self.calls = binding.step
        """The calls of a step: with graphs once it is recorded."""

    def is_settled(self) -> bool:
        """Return True if the next step is to be run by `calls`."""
        if not self._is_watched:
            return False
        return self._fused is None or not all(kernel.is_ready() for kernel in self._fused)

    def step(self) -> None:
        """Run one step by bound calls; record it, or check the fused kernels."""
        if self._fused is not None:
            kernels, self._fused = self._fused, None
            self._check(kernels)
            return
        self._watched += 1
        watch = Watch()
        watch.run(self._binding.step)
        if not watch.is_measuring:
            self._record(_runs(self._binding, watch.waiting))
        self._is_watched = not watch.is_measuring or self._watched == MAX_WATCHED

    def _record(self, runs: list[range]) -> None:
        """Record these runs of instructions; start the compilation of fused kernels for them."""
        self._runs = runs
        self.calls = _with_graphs(self._binding, runs, {}) or self.calls
        if find_spec("triton") is not None:
            from magmath.executor.fused_kernels import fused_kernels

            self._fused = fused_kernels(self._binding.tensors, runs) or None

    def _check(self, kernels: Sequence[FusedKernel]) -> None:
        step, position = self._binding.step, self._binding.tensors.program.prologue
        equal: dict[range, BoundCall] = {}
        for kernel in kernels:
            without_fp_warnings(step.run_some, range(position, kernel.positions.start))
            if kernel.verify(partial(without_fp_warnings, step.run_some, kernel.positions)):
                equal[kernel.positions] = kernel.call
            position = kernel.positions.stop
        last = len(self._binding.tensors.program.instructions)
        without_fp_warnings(step.run_some, range(position, last))
        if equal:
            self.calls = _with_graphs(self._binding, self._runs, equal) or self.calls


@final
class Watch:
    """The operations of the calls of one step that no graph can contain.

    waiting       the positions of the instructions that let the host wait for the device
    is_measuring  True if one of them has measured candidates
    """

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.is_measuring = False

    def run(self, calls: CallList) -> None:
        """Run the calls of a step, one by one."""
        former = torch.cuda.get_sync_debug_mode()
        _set_mode("warn")
        try:
            without_fp_warnings(calls.run_each, self._watched)
        finally:
            _set_mode(former)

    @contextmanager
    def _watched(self, position: int) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            measures = issubclass(warning.category, Measuring)
            if measures or _WAIT in str(warning.message):
                self.waiting.add(position)
                self.is_measuring |= measures
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )


_WAIT = "synchronizing CUDA operation"
"""What torch's warning of a call that waits contains."""


def _set_mode(mode: int | str) -> None:
    """Set what torch does at calls that wait for the device; it warns that this is a prototype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)


def _runs(binding: Binding, waiting: set[int]) -> list[range]:
    """Return the runs of instructions that only start work on the device."""
    program = binding.tensors.program
    instructions, begin = program.instructions, program.prologue
    runs = []
    for position in range(begin, len(instructions) + 1):
        instruction = instructions[position] if position < len(instructions) else None
        is_local_call = isinstance(instruction, Call) and instruction.workspace is None
        if is_local_call and position not in waiting:
            continue
        if position - begin >= MIN_CALLS:
            runs.append(range(begin, position))
        begin = position + 1
    return runs


def _with_graphs(
    binding: Binding, runs: Sequence[range], fused: Mapping[range, BoundCall]
) -> CallList | None:
    """Return the calls of a step with a graph for each run, which has fused kernels for some of its
    instructions; None if there is no run, or if one cannot be recorded."""
    calls = binding.with_segments(fused) if fused else binding.step
    graphs: dict[range, BoundCall] = {}
    for run in runs:
        graph = _recorded(calls, run, binding.tensors.context.device)
        if graph is None:
            return None
        graphs[run] = graph
    return binding.with_segments(graphs) if graphs else None


def _recorded(calls: CallList, positions: range, device: torch.device) -> BoundCall | None:
    """Return the call that starts the recorded kernels of some instructions, or None."""
    graph = torch.cuda.CUDAGraph()
    recorder = _recorder(device)
    try:
        with (
            torch.cuda.stream(torch.cuda.current_stream()),  # again, also after a failure
            torch.cuda.graph(
                graph, recorder.pool, recorder.stream, capture_error_mode="thread_local"
            ),
        ):
            without_fp_warnings(_make_calls, calls, positions)
    except RuntimeError as error:  # a kernel that waits only now: the step keeps its bound calls
        logger.info("a step is not recorded: %s", error)
        return None
    ready = partial(graph.replay)
    ready.__dict__["calls"] = calls  # whose memory the graph accesses
    return ready


def _make_calls(calls: CallList, positions: range) -> None:
    for _, call in calls.calls_at(positions):
        call()


@final
class _Recorder:
    """The stream of a device on which graphs are recorded, of which libraries keep their memory,
    and the memory of their temporaries, which they share: one graph runs after another."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.pool: Any = torch.cuda.graph_pool_handle()
        self._graph = torch.cuda.CUDAGraph()  # torch gives the pool back with its last graph
        with torch.cuda.graph(
            self._graph, self.pool, self.stream, capture_error_mode="thread_local"
        ):
            torch.zeros(1, device=device)


_recorder = cache(_Recorder)
"""Return the recorder of a device."""
