"""The benchmark runner: interleaves the rounds of all systems of a case, A B C A B C ….

Each system has its own process, is compiled and warmed up before the first round, and runs alone
while the others wait. Comparisons are made within a round, so that changes of the machine's speed
during the run do not affect ratios.
"""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from rich.console import Console

from magmath.bench import host_info
from magmath.bench.case import Bench, Case, RunOptions, System
from magmath.bench.peer_processes import PeerNotInstalled, SystemFailed, SystemProcesses
from magmath.bench.result import BenchResult, CaseResult, SystemResult, compare_systems
from magmath.errors import OptionError

# Threads of the previous system may spin before they sleep.
PAUSE_SECONDS = 0.2
# Time for systems to exit after Ctrl-C: MPI leaves files if it is killed.
INTERRUPTED_SECONDS = 2.0


def run_bench(bench: Bench, options: RunOptions, console: Console) -> BenchResult:
    """Measure every case of `bench`; print progress to `console`.

    The result lists systems that are not installed. A system that fails in a case is excluded from
    the rest of it; one that cannot start fails in every case. Ctrl-C ends the run: the result has
    the completed cases and is marked as interrupted.
    """
    chosen = choose_systems(bench.systems(options), options.peers)
    wanted = choose_cases(bench.cases(options), options.cases)
    comparisons = bench.comparisons(options)
    absent: dict[str, str] = {}
    broken: dict[str, str] = {}
    versions: dict[str, str] = {}
    cases: list[CaseResult] = []
    interrupted = False
    with ExitStack() as stack:
        running: dict[str, SystemProcesses] = {}
        try:
            for system, processes in _start(chosen, options, console, absent, broken):
                stack.callback(processes.stop)
                running[system.name] = processes
                versions |= processes.versions
            for case in wanted:
                memory_runs = options.memory_runs if bench.measures_memory else 0
                systems = _run_case(case, running, broken, options.rounds, memory_runs, console)
                cases.append(CaseResult(case, systems, compare_systems(case, systems, comparisons)))
        except KeyboardInterrupt:
            interrupted = True
            stack.enter_context(_ignore_interrupts())  # a second Ctrl-C would lose the measurements
            console.print(f"interrupted: {len(cases)} cases are kept, the others end")
            for processes in running.values():
                processes.stop(INTERRUPTED_SECONDS)
    return BenchResult(
        bench=bench.name,
        title=bench.title,
        x_name=bench.x_name,
        quick=options.quick,
        rounds=options.rounds,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["magmath", *sys.argv[1:]]),
        commit=host_info.source_commit(),
        machine=host_info.describe(options.device),
        environment=host_info.tuning_variables(),
        versions=versions,
        absent=absent,
        interrupted=interrupted,
        cases=cases,
        plot=bench.plot,
    )


@contextmanager
def _ignore_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def choose_systems(systems: list[System], peers: tuple[str, ...]) -> list[System]:
    """Return magmath's systems and the requested peers. Raises OptionError for an unknown peer."""
    known = sorted({system.peer for system in systems if system.peer})
    if unknown := set(peers) - {*known, "all", "none"}:
        raise OptionError(
            f"bench: unknown peers {', '.join(sorted(unknown))}; this benchmark has "
            f"{', '.join(known) or 'none'}"
        )
    return [s for s in systems if not s.peer or s.peer in peers or "all" in peers]


def choose_cases(cases: list[Case], texts: tuple[str, ...]) -> list[Case]:
    """Return the cases whose names contain one of the texts, all without texts. Raises OptionError
    if none does."""
    chosen = [case for case in cases if not texts or any(text in case.name for text in texts)]
    if not chosen:
        names = "\n  ".join(case.name for case in cases)
        wanted = " or ".join(map(repr, texts))
        raise OptionError(f"bench: no case has {wanted} in its name; there are\n  {names}")
    return chosen


def _start(
    systems: list[System],
    options: RunOptions,
    console: Console,
    absent: dict[str, str],
    broken: dict[str, str],
) -> Iterator[tuple[System, SystemProcesses]]:
    """Yield the started systems; record why others are absent or broken."""
    for system in systems:
        console.print(f"starting {system.name} …", markup=False)
        for python in options.pythons if system.peer else (sys.executable,):
            try:
                processes = SystemProcesses(system, python, options.device)
            except PeerNotInstalled as error:
                _add_reason(absent, system.name, str(error))
            except SystemFailed as error:
                broken.setdefault(system.name, str(error))
            else:
                absent.pop(system.name, None)
                broken.pop(system.name, None)
                yield system, processes
                break
        else:
            if system.name in broken:
                absent.pop(system.name, None)
                console.print(f"  failed: {broken[system.name]}", markup=False)
            else:
                console.print(f"  absent: {absent[system.name]}", markup=False)


def _add_reason(absent: dict[str, str], name: str, reason: str) -> None:
    """Record a reason once: several environments may lack different packages."""
    reasons = absent.get(name, "")
    if reason not in reasons:
        absent[name] = f"{reasons}; {reason}" if reasons else reason


def _run_case(
    case: Case,
    running: dict[str, SystemProcesses],
    broken: dict[str, str],
    rounds: int,
    memory_runs: int,
    console: Console,
) -> dict[str, SystemResult]:
    console.print(f"[bold]{case.name}[/]")
    results = {name: _prepare(case, processes, console) for name, processes in running.items()}
    results |= {name: SystemResult("failed", reason=reason) for name, reason in broken.items()}
    for turn in range(rounds + 1):
        for name, result in results.items():
            if result.state == "measured":
                time.sleep(PAUSE_SECONDS)
                _round(running[name], result, warm_up=turn == 0)
        console.print(f"  round {turn} of {rounds}" if turn else "  warm-up")
    for name, result in results.items():
        if result.state == "measured":
            result.record |= running[name].finish()
    for turn in range(memory_runs):
        for name, result in results.items():
            if result.state == "measured":
                _measure_memory(case, running[name], result)
        console.print(f"  memory {turn + 1} of {memory_runs}")
    return results


def _prepare(case: Case, processes: SystemProcesses, console: Console) -> SystemResult:
    if reason := processes.system.unsupported_reason(case):
        return SystemResult("left out", reason=reason)
    console.print(f"  preparing {processes.system.name} …", markup=False)
    try:
        return SystemResult("measured", record=processes.prepare(case))
    except SystemFailed as error:
        return SystemResult("failed", reason=str(error))


def _round(processes: SystemProcesses, result: SystemResult, warm_up: bool) -> None:
    try:
        seconds = processes.round()
    except SystemFailed as error:
        result.state, result.reason = "failed", str(error)
        return
    if not warm_up:
        result.seconds.append(seconds)


def _measure_memory(case: Case, processes: SystemProcesses, result: SystemResult) -> None:
    try:
        result.peak_bytes.append(processes.peak_bytes(case, result.record.get("variant", "")))
    except SystemFailed as error:
        result.state, result.reason = "failed", str(error)
