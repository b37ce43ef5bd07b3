"""The simulated step of a program: the seconds and the timeline of the instructions that the
workers of a pool run."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, final

from magmath.core.resources import processor_count
from magmath.diagnostics.explain import explain_program
from magmath.diagnostics.explanation import duration
from magmath.errors import OptionError
from magmath.executor.call_times import CallTime, CallTimes
from magmath.parallel.simulator.asynchronous_parts import step_parts
from magmath.parallel.simulator.asynchronous_tasks import asynchronous_tasks
from magmath.parallel.simulator.events import (
    COMMUNICATE,
    COMPUTE,
    Host,
    Timeline,
    in_order,
    simulate,
)
from magmath.parallel.simulator.program_tasks import WorkerNetwork, program_tasks
from magmath.parallel.simulator.slowdown import checked_slowdown
from magmath.parallel.simulator.timeline import save_timeline
from magmath.passes.environment import Environment
from magmath.program.instructions import Call, Program, Redistribute
from magmath.transform.subgraph_programs import RepeatedProgram

THREADS: Final = "threads"
SEGMENTS: Final = "segments"
STEPS: Final = 3
"""Simulated steps, so that the last one shows the steady state."""
Times = Literal["measured", "predicted"]


@final
@dataclass(frozen=True, repr=False)
class SimulatedStep:
    """A simulated training step.

    seconds   of a step in the steady state; between two updates, if each worker takes steps on its
              own
    timeline  of some steps of all workers; of a step of several programs, of some runs of each
    form      the form of the program that is the fastest: "replay", "segments" (with compiled
              functions), or "predicted"; "threads, replay" … if the threads of the only worker
              divide the program. Those of several programs are joined by "and"
    """

    seconds: float
    timeline: Timeline
    form: str

    def save_timeline(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline of all workers, as `parallel.save_timeline` does."""
        save_timeline(self.timeline, path)

    def __repr__(self) -> str:
        return f"SimulatedStep({duration(self.seconds)}, {self.form!r})"

    def __str__(self) -> str:
        workers = sorted({worker for task in self.timeline.tasks for worker in task.workers})
        rows = [f"{duration(self.seconds)} a step, {self.form}"]
        kind = "thread" if THREADS in self.form else "worker"
        rows += [
            f"{kind} {worker}: computes {self._share(worker, COMPUTE)}, exchanges messages "
            f"{self._share(worker, COMMUNICATE)}"
            for worker in workers
        ]
        return "\n".join(rows)

    def _share(self, worker: int, stream: str) -> str:
        """Return the share of the time in which a stream of a worker is busy without waiting."""
        busy = self.timeline.working_seconds(worker, stream)
        return f"{busy / (self.timeline.seconds or 1.0):.0%}"


def simulate_programs(
    programs: Sequence[RepeatedProgram],
    environment: Environment,
    *,
    times: Times = "measured",
    slowdown: Mapping[int, float] | None = None,
) -> SimulatedStep:
    """Simulate a step of several programs in order; arguments as in `simulate_program`."""
    parts = [
        simulate_program(x.program, environment, times=times, slowdown=slowdown) for x in programs
    ]
    seconds = sum(part.seconds * x.times for part, x in zip(parts, programs, strict=True))
    forms = dict.fromkeys([part.form for part in parts])
    return SimulatedStep(seconds, in_order([part.timeline for part in parts]), " and ".join(forms))


def simulate_program(
    program: Program,
    environment: Environment,
    *,
    times: Times = "measured",
    slowdown: Mapping[int, float] | None = None,
    processors: int | None = None,
) -> SimulatedStep:
    """Simulate steps of a program, event by event.

    times       "measured": each worker's calls are measured here, one worker at a time, without
                waits and without competition; "predicted": by the cost model
    slowdown    worker → factor by which its computations take longer
    processors  processors of each host; by default those that this process may use

    Raises OptionError for other times, and for factors that are not positive or of other workers.
    """
    if times not in ("measured", "predicted"):
        raise OptionError(f"simulate: times must be 'measured' or 'predicted', was given {times!r}")
    count = processor_count() if processors is None else processors
    slower = checked_slowdown(slowdown, program.workers)
    if program.asynchronous is not None:
        return _asynchronous(program, environment, times, slower, count)
    candidates = _forms(program, environment, times, slower, count)
    if program.team is not None:
        # If the compiler takes too long for the program, so it does for its threads.
        is_compiled = any(step.form == SEGMENTS for step in candidates)
        candidates += _team_forms(
            program.team, environment, times, slower, count, compiled=is_compiled
        )
    return min(candidates, key=lambda step: step.seconds)


def _team_forms(
    team: Program,
    environment: Environment,
    times: Times,
    slowdown: Mapping[int, float],
    count: int,
    *,
    compiled: bool,
) -> list[SimulatedStep]:
    """Return the simulated steps of the program of the threads of the only worker."""
    threads = replace(environment, threads=1, link=environment.machine.team, shares_memory=True)
    slower = dict.fromkeys(range(team.workers), slowdown.get(0, 1.0))
    forms = _forms(team, threads, times, slower, count, compiled=compiled)
    return [replace(step, form=f"{THREADS}, {step.form}") for step in forms]


def _forms(
    program: Program,
    environment: Environment,
    times: Times,
    slowdown: Mapping[int, float],
    count: int,
    *,
    compiled: bool = True,
) -> list[SimulatedStep]:
    """Return the simulated steps of each form of a program; of that with compiled functions only if
    `compiled`."""
    estimates = [step.seconds for step in explain_program(program, environment).instructions]
    network, host = _shared_resources(program, environment, count)
    forms = (
        _measured(program, environment, compiled)
        if times == "measured"
        else {"predicted": [_predicted(program, estimates, environment)] * program.workers}
    )
    steps = []
    for form, call_times in forms.items():
        tasks, ends = program_tasks(program, call_times, network, estimates, STEPS)
        timeline = simulate(tasks, network.levels, slowdown, host, network.hosts)
        last, former = (_end(timeline, end) for end in (ends[-1], ends[-2]))
        steps.append(SimulatedStep(last - former, timeline, form))
    return steps


def _shared_resources(
    program: Program, environment: Environment, processors: int
) -> tuple[WorkerNetwork, Host]:
    """Return the connection of the workers of a program, and what they share on a host. All hosts
    are like this one."""
    machine, shares_memory = environment.machine, environment.shares_memory
    network = WorkerNetwork.of(
        machine, program.workers, processors, environment.link, shares_memory=shares_memory
    )
    free = max(1, processors // environment.threads)
    return network, Host(free, machine.host_bandwidth, machine.crowding)


def _asynchronous(
    program: Program,
    environment: Environment,
    times: Times,
    slowdown: Mapping[int, float],
    processors: int,
) -> SimulatedStep:
    """Return a simulated step of workers that each take steps on their own: its seconds are those
    between two updates."""
    step, forms = program.asynchronous, dict[str, None]()
    assert step is not None

    def times_of(part: Program, alone: Environment, estimates: list[float]) -> CallTimes:
        if times == "predicted":
            forms["predicted"] = None
            return _predicted(part, estimates, alone)
        measured = {form: calls for form, (calls,) in _measured(part, alone, True).items()}
        fastest = min(measured, key=lambda form: sum(x.seconds for x in measured[form]))
        forms[fastest] = None
        return measured[fastest]

    network, host = _shared_resources(program, environment, processors)
    parts = step_parts(program, environment, network, times_of)
    first, count = program.workers, 3 * STEPS * program.workers
    tasks, updates = asynchronous_tasks(parts, step.staleness, count, network.levels, slowdown)
    timeline = simulate(tasks, network.levels, slowdown, host, network.hosts)
    # At the end, workers without a next step leave the processors to the others.
    ends = sorted(timeline.spans[number].end for number in updates)[: count - first]
    seconds = (ends[-1] - ends[first]) / (len(ends) - 1 - first)
    return SimulatedStep(seconds, timeline, " and ".join(forms))


def _end(timeline: Timeline, tasks: int) -> float:
    """Return the time at which the first tasks of a timeline have ended."""
    return max([span.end for span in timeline.spans[:tasks]], default=0.0)


def _measured(
    program: Program, environment: Environment, compiled: bool
) -> dict[str, list[CallTimes]]:
    """Return the times of all workers for each form; workers with equal parts are measured once."""
    from magmath.executor.isolated_run import isolated_times  # loads the kernels: on first use

    known: dict[Hashable, dict[str, CallTimes]] = {}
    by_worker = []
    for worker in range(program.workers):
        shapes = tuple([_shape(program, slot, worker) for slot in range(len(program.slots))])
        if shapes not in known:
            known[shapes] = isolated_times(
                program,
                worker,
                shares_memory=environment.shares_memory,
                threads=environment.threads,
                compiled=compiled,
            )
            compiled = compiled and SEGMENTS in known[shapes]
        by_worker.append(known[shapes])
    forms = [form for form in by_worker[0] if all(form in times for times in by_worker)]
    return {form: [times[form] for times in by_worker] for form in forms}


def _shape(program: Program, slot: int, worker: int) -> Hashable:
    layout = program.slots[slot].layout
    return tuple(layout.local_shape(worker)) if layout.tiles(worker) else None


def _predicted(program: Program, estimates: list[float], environment: Environment) -> CallTimes:
    """Return the predicted times of a worker's calls; barriers and messages are tasks of their
    own."""
    times: CallTimes = []
    for i, instruction in enumerate(program.instructions):
        seconds = estimates[i] if isinstance(instruction, Call | Redistribute) else 0.0
        if isinstance(instruction, Redistribute) and not environment.shares_memory:
            seconds = environment.machine.call_seconds
        times.append(CallTime(range(i, i + 1), seconds))
    return times[program.prologue :]
