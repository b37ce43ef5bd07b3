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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import final

from rich.console import Console

from magmath.bench import host_info
from magmath.bench.case import Bench, Case, RunOptions, System
from magmath.bench.peer_processes import (
    STOP_SECONDS,
    PeerNotInstalled,
    SystemFailed,
    SystemProcesses,
)
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
    the completed cases and is marked as interrupted. Raises KeyboardInterrupt if there are none.
    """
    chosen = choose_systems(bench.systems(options), options.peers)
    cases = choose_cases(bench.cases(options), options.cases)
    comparisons = bench.comparisons(options)
    memory_runs = options.memory_runs if bench.measures_memory else 0
    systems = _Systems(console)
    results: list[CaseResult] = []
    interrupted = False
    with ExitStack() as after_stop, closing(systems):
        try:
            for system in chosen:
                systems.start(system, options)
            for case in cases:
                measured = systems.measure(case, options.rounds, memory_runs)
                figures = compare_systems(case, measured, comparisons)
                results.append(CaseResult(case, measured, figures))
        except KeyboardInterrupt:
            interrupted = True
            # Another Ctrl-C would lose the measurements.
            after_stop.enter_context(_ignore_interrupts())
            console.print(f"interrupted: {len(results)} cases are kept, the others end")
            systems.close(INTERRUPTED_SECONDS)
    if not results:
        raise KeyboardInterrupt
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
        versions=systems.versions,
        absent=systems.absent,
        interrupted=interrupted,
        cases=results,
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
        listed = " or ".join(map(repr, texts))
        raise OptionError(f"bench: no case has {listed} in its name; there are\n  {names}")
    return chosen


@final
class _Systems:
    """The started systems of a run, and why the others are absent or broken."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: dict[str, SystemProcesses] = {}
        self._broken: dict[str, str] = {}
        self.absent: dict[str, str] = {}
        self.versions: dict[str, str] = {}

    def start(self, system: System, options: RunOptions) -> None:
        """Start a system with the first Python that has its libraries."""
        self._console.print(f"starting {system.name} …", markup=False)
        for python in options.pythons if system.peer else (sys.executable,):
            try:
                processes = SystemProcesses(system, python, options.device)
            except PeerNotInstalled as error:
                _add_reason(self.absent, system.name, str(error))
            except SystemFailed as error:
                self._broken.setdefault(system.name, str(error))
            else:
                self.absent.pop(system.name, None)
                self._broken.pop(system.name, None)
                self._running[system.name] = processes
                self.versions |= processes.versions
                return
        if system.name in self._broken:
            self.absent.pop(system.name, None)
            self._console.print(f"  failed: {self._broken[system.name]}", markup=False)
        else:
            self._console.print(f"  absent: {self.absent[system.name]}", markup=False)

    def close(self, patience: float = STOP_SECONDS) -> None:
        """End the processes of all systems, by force after `patience` seconds. Idempotent."""
        for processes in reversed(self._running.values()):
            processes.stop(patience)

    def measure(self, case: Case, rounds: int, memory_runs: int) -> dict[str, SystemResult]:
        """Return the results of all systems in a case."""
        self._console.print(f"[bold]{case.name}[/]")
        results = {name: self._prepare(case, p) for name, p in self._running.items()}
        results |= {name: SystemResult("failed", reason=why) for name, why in self._broken.items()}
        self._take_turns(results, _warm_up)
        self._console.print("  warm-up")
        for number in range(1, rounds + 1):
            self._take_turns(results, _add_round)
            self._console.print(f"  round {number} of {rounds}")
        self._take_turns(results, _add_record)
        for number in range(1, memory_runs + 1):
            self._take_turns(results, partial(_add_peak, case))
            self._console.print(f"  memory {number} of {memory_runs}")
        return results

    def _prepare(self, case: Case, processes: SystemProcesses) -> SystemResult:
        if reason := processes.system.unsupported_reason(case):
            return SystemResult("left out", reason=reason)
        self._console.print(f"  preparing {processes.system.name} …", markup=False)
        try:
            return SystemResult("measured", record=processes.prepare(case))
        except SystemFailed as error:
            return SystemResult("failed", reason=str(error))

    def _take_turns(
        self,
        results: dict[str, SystemResult],
        step: Callable[[SystemProcesses, SystemResult], None],
    ) -> None:
        """Do a step with each system in turn, except those that have failed."""
        for name, result in results.items():
            if result.state != "measured":
                continue
            try:
                step(self._running[name], result)
            except SystemFailed as error:
                result.state, result.reason = "failed", str(error)


def _warm_up(processes: SystemProcesses, result: SystemResult) -> None:
    time.sleep(PAUSE_SECONDS)
    processes.round()


def _add_round(processes: SystemProcesses, result: SystemResult) -> None:
    time.sleep(PAUSE_SECONDS)
    result.seconds.append(processes.round())


def _add_record(processes: SystemProcesses, result: SystemResult) -> None:
    result.record |= processes.finish()


def _add_peak(case: Case, processes: SystemProcesses, result: SystemResult) -> None:
    variant = result.record.get("variant", "")
    result.peak_bytes.append(processes.peak_bytes(case, variant))


def _add_reason(absent: dict[str, str], name: str, reason: str) -> None:
    """Record a reason once: several environments may lack different packages."""
    reasons = absent.get(name, "")
    if reason not in reasons:
        absent[name] = f"{reasons}; {reason}" if reasons else reason
