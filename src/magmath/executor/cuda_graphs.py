"""CUDA graphs: the kernels of a step on a GPU, recorded once and then started by one call.

A kernel of a GPU takes a few microseconds to start from Python, often longer than it computes. The
first steps are ready calls, watched one by one for whether they let the host wait for the device
or measure candidates. Once none measures, the runs of instructions that only start work on the
device are recorded; those that wait, compute in host memory, or communicate remain ready calls
between the graphs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, final

import torch

from magmath.executor.bind import Binding, Calls
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.executor.ready_calls import Ready
from magmath.executor.select import Executor
from magmath.kernels.dispatch.tuner import Measuring
from magmath.program.instructions import Call

MIN_RUNS: Final = 3
"""Runs of a binding, one step each, before its step is recorded."""
MIN_CALLS: Final = 2
"""Minimum instructions of a graph: one that replaces one call saves little."""
WATCHED: Final = 64
"""Maximum number of steps that are watched for measurements; then they remain ready calls."""


@final
class RecordedSteps(Executor):
    """Executes the steps of a run by graphs, once they are recorded."""

    name = "graphs"

    def __init__(self, binding: Binding) -> None:
        self._binding = binding

    def is_ready(self) -> bool:
        return True

    def start(self) -> None:
        self._binding.start()

    def replay(self, steps: int) -> list[float]:
        binding, values = self._binding, list[float]()
        while binding.compiled is None and steps:
            watched_step(binding)
            values += binding.emitted_now()
            steps -= 1
        if steps:
            assert binding.compiled is not None
            values += binding.replay(steps, binding.compiled)
        return values

    def close(self) -> None:
        self._binding.compiled = None


@final
class RecordedRuns:
    """Runs a program one step at a time, by graphs of the bindings that run again and again."""

    def run(self, binding: Binding) -> list[float]:
        """Run one step; return the scalars that it emits. Must be called in
        `without_fp_warnings`."""
        binding.runs += 1
        if binding.compiled is None and binding.runs > MIN_RUNS:
            binding.prologue.run()
            watched_step(binding)
            return binding.emitted_now()
        return binding.once(binding.compiled or binding.step)

    def close(self) -> None:
        """Do nothing: graphs end with their bindings."""


def watched_step(binding: Binding) -> None:
    """Run one step by ready calls, and record it if no call has measured anything."""
    waiting: set[int] = set()
    measuring: set[int] = set()

    @contextmanager
    def watched(position: int) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            yield
        if found:
            waiting.add(position)
        if any(issubclass(one.category, Measuring) for one in found):
            measuring.add(position)

    binding.watched += 1
    step = binding.step
    with _warnings_of_waits():
        without_fp_warnings(step.run_each, watched)
    if not measuring:
        binding.compiled = _with_graphs(binding, waiting)
    elif binding.watched == WATCHED:
        binding.compiled = binding.step


@contextmanager
def _warnings_of_waits() -> Iterator[None]:
    """Let torch warn of calls that let the host wait for the device."""
    former = torch.cuda.get_sync_debug_mode()
    _set_mode("warn")
    try:
        yield
    finally:
        _set_mode(former)


def _set_mode(mode: int | str) -> None:
    """Set what torch does at calls that wait for the device; it warns that this is a prototype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)


def _with_graphs(binding: Binding, waiting: set[int]) -> Calls:
    """Return the calls of a step with graphs for the runs of instructions that do not wait."""
    program = binding.tensors.program
    instructions, first = program.instructions, program.prologue
    graphs: dict[range, Ready] = {}
    begin = first
    for position in range(first, len(instructions) + 1):
        one = instructions[position] if position < len(instructions) else None
        if isinstance(one, Call) and one.workspace is None and position not in waiting:
            continue
        if position - begin >= MIN_CALLS:
            graph = _recorded(binding.step, range(begin, position))
            if graph is None:
                return binding.step
            graphs[range(begin, position)] = graph
        begin = position + 1
    return Calls(first, instructions[first:], binding.tensors, graphs) if graphs else binding.step


def _recorded(calls: Calls, positions: range) -> Ready | None:
    """Return the call that starts the recorded kernels of some instructions, or None."""
    graph = torch.cuda.CUDAGraph()
    stream, pool = _stream_and_pool()
    try:
        with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
            without_fp_warnings(calls.run_some, positions)
    except Exception:  # a kernel that waits only now: the step continues by ready calls
        return None
    return graph.replay


@cache
def _stream_and_pool() -> tuple[torch.cuda.Stream, Any]:
    """Return the stream on which graphs are recorded, of which libraries keep their memory, and the
    memory of their temporaries, which they share: one graph runs after another."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    return stream, torch.cuda.graph_pool_handle()
