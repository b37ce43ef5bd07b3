"""The tuner: measures the candidates for one operation and stores the fastest one.

Decisions are stored in memory and in the on-disk cache (`core/disk_cache.py`), as one JSON entry
each, which any number of processes share. Keys contain the processor, the thread count and the
libraries' versions in addition to the operation.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.metadata import version
from statistics import median
from threading import RLock
from typing import Any, Final, final

import torch

from magmath.core import wait_policy
from magmath.core.byte_sizes import WORKSPACE_LIMIT
from magmath.core.cpu import cpu_name
from magmath.core.disk_cache import DiskCache
from magmath.core.type_aliases import BoundCall
from magmath.kernels.dispatch.measurements import Measurements
from magmath.kernels.free_processors import Waits

ROUNDS = 5
ROUND_SECONDS = 100e-6
BUDGET_SECONDS = 15e-3  # default; no round starts after it
# Ratio to the fastest first timing above which a candidate is not measured further.
FIRST_TIMING_LIMIT = 3.0
ADVANTAGE = 0.95  # maximum ratio to the default candidate's time for replacing it
DISTURBED = 1.5  # ratio of median to minimum from which other processes disturbed the measurement
DECISIONS: Final = DiskCache("tuner")
_ON = " | "


@final
@dataclass(frozen=True, slots=True)
class TunerDecision:
    """The chosen candidate, and the seconds per call of every candidate, the default one first.

    `key` contains the operation with its shapes and types, the machine and the thread count.
    """

    key: str
    chosen: str
    seconds: Mapping[str, float]

    @property
    def operation(self) -> str:
        """The operation, its shapes and types."""
        return self.key.partition(_ON)[0]

    @property
    def threads(self) -> int | None:
        """The thread count of the measurement; None if it was made on another machine."""
        measured_on, _, threads = self.key.partition(_ON)[2].rpartition(", ")
        return int(threads.split()[0]) if measured_on == machine() else None


class Tuner:
    """Chooses among the candidates for an operation, with one measurement per key.

    `cache` is the on-disk cache of decisions; None stores them in memory only. With `enabled=False`
    nothing is measured and the first candidate is always chosen. Callers omit candidates that need
    more than `workspace_limit` bytes of memory in addition to their operands.
    """

    def __init__(
        self,
        cache: DiskCache | None = None,
        *,
        enabled: bool = True,
        workspace_limit: int = WORKSPACE_LIMIT,
    ) -> None:
        self.enabled = enabled
        self.workspace_limit = workspace_limit
        self._cache = cache if enabled else None
        self._decisions: dict[str, TunerDecision] = {}
        self._measurements: dict[tuple[str, tuple[str, ...]], Measurements] = {}
        self._lock = RLock()  # a measurement may bind products that are measured too

    def choose(
        self,
        key: str,
        candidates: Mapping[str, Callable[[], BoundCall]],
        synchronize: BoundCall | None = None,
        budget: float = BUDGET_SECONDS,
    ) -> str:
        """Return the name of the fastest candidate for the operation, shapes and types in `key`.

        `candidates` are in order of preference, the default first; each returns a bound call on
        operands that may be overwritten. `synchronize` waits for a device to finish. No round
        starts after `budget` seconds.
        """
        default = next(iter(candidates))
        if len(candidates) == 1 or not self.enabled:
            return default
        full_key = _full_key(key)
        with self._lock:
            decision = self._decision(full_key, tuple(candidates))
            if decision is None:
                calls = {name: bind() for name, bind in candidates.items()}
                waits = Waits()
                rounds = _rounds(calls, synchronize or no_wait, budget)
                decision = self._decide(full_key, rounds, waits)
        return decision.chosen

    def known_choice(self, key: str, names: tuple[str, ...]) -> str | None:
        """Return the fastest of these candidates for a key; None if it is not decided.

        The first one is the default, which a disabled tuner always chooses.
        """
        if len(names) == 1 or not self.enabled:
            return names[0]
        with self._lock:
            decision = self._decision(_full_key(key), names)
        return None if decision is None else decision.chosen

    def measurements(self, key: str, names: tuple[str, ...]) -> Measurements:
        """Return the timings of these candidates for a key, which all calls with it share."""
        with self._lock:
            return self._measurements.setdefault((_full_key(key), names), Measurements(names))

    def decide(self, key: str, measurements: Measurements) -> str:
        """Return the fastest candidate by these timings, and store the decision."""
        full_key = _full_key(key)
        with self._lock:
            self._measurements.pop((full_key, measurements.names), None)
            decision = self._decision(full_key, measurements.names)
            if decision is None:
                decision = self._decide(full_key, measurements.seconds, measurements.waits)
            return decision.chosen

    def table(self) -> list[TunerDecision]:
        """Return every decision in memory and on disk, with the timings of all its candidates."""
        contents = [] if self._cache is None else self._cache.contents()
        stored = {d.key: d for d in map(_decoded, contents) if d is not None}
        with self._lock:
            return list((stored | self._decisions).values())

    def _decision(self, full_key: str, names: tuple[str, ...]) -> TunerDecision | None:
        """Return the decision among exactly these candidates; None if there is none."""
        decision = self._decisions.get(full_key) or self._read(full_key)
        if decision is None or decision.seconds.keys() != set(names):
            return None
        self._decisions[full_key] = decision
        return decision

    def _decide(
        self, full_key: str, rounds: Mapping[str, Sequence[float]], waits: Waits
    ) -> TunerDecision:
        """Return the decision by these timings, the default's first; store it on disk if the
        timings were stable, and no other process used the processors."""
        # Other processes only increase a timing, so the minimum counts.
        seconds = {name: min(timings) for name, timings in rounds.items()}
        default = next(iter(seconds))
        best = min(seconds, key=seconds.__getitem__)
        chosen = best if seconds[best] < ADVANTAGE * seconds[default] else default
        decision = self._decisions[full_key] = TunerDecision(full_key, chosen, seconds)
        is_stable = median(rounds[chosen]) < DISTURBED * seconds[chosen]
        is_disturbed = not is_stable or waits.has_contention(torch.get_num_threads())
        if self._cache is not None and not is_disturbed:
            self._cache.write(_name(full_key), _encoded(decision))
        return decision

    def _read(self, full_key: str) -> TunerDecision | None:
        """Return the stored decision for a key, or None."""
        content = None if self._cache is None else self._cache.read(_name(full_key))
        return None if content is None else _decoded(content)


def _full_key(key: str) -> str:
    """Return the key of a decision: the operation, the machine and the number of threads."""
    return f"{key}{_ON}{machine()}, {torch.get_num_threads()} threads"


@cache
def tuner_for(deterministic: bool) -> Tuner:
    """Return the tuner of this process; in deterministic mode it always chooses the first
    candidate."""
    if deterministic:
        return Tuner(enabled=False)
    return Tuner(DECISIONS)


@cache
def wake_thread_pool() -> BoundCall:
    """Return a torch operation on several threads, to be called before each measured call.

    Programs run such operations between others. Torch's threads then spin for a while and compete
    with a library that has its own threads: the kernel that is fastest in isolation may be many
    times slower in a program.
    """
    numbers = torch.zeros(1 << 17)
    return partial(torch.neg, numbers, out=numbers)


@final
class Measuring(UserWarning):
    """The warning that a call has measured a candidate, so that later calls do other work."""


def wait_for_device() -> None:
    """Wait for the current GPU, around a measurement."""
    if torch.cuda.get_sync_debug_mode():
        warnings.warn("a candidate is measured", Measuring, stacklevel=2)
    torch.cuda.synchronize()


def no_wait() -> None:
    """Replace `synchronize` on the CPU."""


def _rounds(
    calls: Mapping[str, BoundCall], synchronize: BoundCall, budget: float
) -> dict[str, list[float]]:
    """Return several timings of each call, in seconds, measured in turn; two for calls that are
    `FIRST_TIMING_LIMIT` times slower than the fastest."""

    def seconds(call: BoundCall, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        synchronize()
        return (time.perf_counter() - start) / times

    for call in calls.values():
        seconds(call, 1)  # loads and compiles
    start = time.perf_counter()
    timings = {name: [seconds(call, 1), seconds(call, 1)] for name, call in calls.items()}
    fastest = min(map(min, timings.values()))
    fast = [name for name in calls if min(timings[name]) <= FIRST_TIMING_LIMIT * fastest]
    repeats = {name: int(ROUND_SECONDS / max(min(timings[name]), 1e-7)) for name in fast}
    for _ in range(ROUNDS):
        for name in fast:
            timings[name].append(seconds(calls[name], max(1, repeats[name])))
        if time.perf_counter() - start > budget:
            break
    return timings


def _name(key: str) -> str:
    """Return the name of a decision in the on-disk cache."""
    return sha256(key.encode()).hexdigest()[:32]


def _encoded(decision: TunerDecision) -> bytes:
    record = {"key": decision.key, "chosen": decision.chosen, "seconds": dict(decision.seconds)}
    return json.dumps(record).encode()


def _decoded(content: bytes) -> TunerDecision | None:
    """Return the decision in an entry; None if the entry is not valid."""
    try:
        record: Any = json.loads(content)
        key, chosen, seconds = record["key"], record["chosen"], record["seconds"]
        if not (isinstance(key, str) and isinstance(chosen, str) and chosen in seconds):
            return None
        return TunerDecision(key, chosen, {str(k): float(v) for k, v in seconds.items()})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


@cache
def machine() -> str:
    """Return the processor, devices, wait settings and libraries that a decision depends on."""
    waits = [os.environ.get(name, "") for name in (wait_policy.OPENBLAS, *wait_policy.OPENMP)]
    parts = [cpu_name(), os.environ.get("OPENBLAS_CORETYPE", ""), f"waits {'/'.join(waits)}"]
    if torch.cuda.is_available():
        parts.append(torch.cuda.get_device_name())
    parts += [f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "llvmlite")]
    return ", ".join(part for part in parts if part)
