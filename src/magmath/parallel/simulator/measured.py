"""Timelines of measured runs: what each worker did in a step, from the times of a profile."""

from __future__ import annotations

from magmath.diagnostics.explanation import Summed
from magmath.errors import OptionError
from magmath.parallel.simulator.events import COMMUNICATE, COMPUTE, SimulatedTask, Span, Timeline


def measured_timeline(costs: Summed) -> Timeline:
    """Return the timeline of each worker, instruction by instruction, as a profile measured it.

    costs   a profile, or the explanation of a profiled run

    All workers begin at 0, and do not wait between instructions; what a worker waits for another is
    the time of its barriers and exchanges. Raises OptionError if nothing was measured.
    """
    if not any(step.by_worker for step in costs.instructions):
        raise OptionError(
            "measured_timeline: needs the times of workers, which only profiled runs have; run the "
            "step in a `with mm.profile() as profile:` block, and give the profile"
        )
    tasks: list[SimulatedTask] = []
    spans: list[Span] = []
    ends: dict[int, float] = {}
    for step in costs.instructions:
        for worker, seconds in enumerate(step.by_worker):
            stream = COMPUTE if step.phase == "compute" else COMMUNICATE
            start = ends.get(worker, 0.0)
            ends[worker] = start + seconds
            spans.append(Span(len(tasks), start, ends[worker]))
            tasks.append(
                SimulatedTask(f"{step.operation} ({step.phase})", (worker,), (stream,), seconds)
            )
    return Timeline(tuple(tasks), tuple(spans))
