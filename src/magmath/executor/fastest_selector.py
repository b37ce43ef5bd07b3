"""The selection of the fastest of several candidates that leave the same results.

Candidates that need a compiler become ready one after the other, while the first one runs. Each
is timed on the current runs when it is ready, and the fastest continues. No run waits for a
compiler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Generic, Protocol, TypeVar, final

from magmath.core.options import COMPILE_AFTER

TRIALS = 3
"""Timed chunks of steps of a candidate, after one to warm up."""
RECHECK = 40
"""Chunks before the other candidates are timed again; the interval then doubles each time."""
RETRIAL_LIMIT = 2.0
"""Candidates that were never within this factor of the fastest one are not timed again."""
COMPILE_AFTER_SECONDS = COMPILE_AFTER.read_number()
"""Seconds of steps before anything is compiled for them, by default the time in which the source of
`WRITTEN_INSTRUCTIONS` is written; infinite: nothing is compiled."""
WRITTEN_INSTRUCTIONS = 1000


def writing_factor(instructions: int) -> float:
    """Return the factor by which native code for a program of this length is worth compiling later,
    since a run waits while its source is written."""
    return max(1.0, instructions / WRITTEN_INSTRUCTIONS)


class CandidateExecutor(ABC):
    """One of several executors of a program, of which the fastest is selected."""

    name: str

    @abstractmethod
    def is_ready(self) -> bool:
        """Return True once it can execute."""

    @abstractmethod
    def close(self) -> None:
        """Release its resources."""


CandidateType = TypeVar("CandidateType", bound=CandidateExecutor)


class Workers(Protocol):
    """The workers that select collectively."""

    @property
    def rank(self) -> int:
        """The number of this worker."""

    def allreduce_max(self, value: int, /) -> int:
        """Return the largest of the workers' values."""


@final
class OneWorker:
    """A worker that selects alone."""

    rank = 0

    def allreduce_max(self, value: int) -> int:
        """Return the value."""
        return value


@final
@dataclass
class _Trials(Generic[CandidateType]):
    """A candidate, with what is known of its speed.

    paces  its latest seconds per step
    least  the least seconds per step so far
    count  its chunks since its trials began, the first of which warms up
    """

    candidate: CandidateType
    paces: deque[float]
    least: float = inf
    count: int = 0

    @property
    def pace(self) -> float:
        """The least of the latest seconds per step; infinite before there are some."""
        return min(self.paces, default=inf)

    @property
    def is_timed(self) -> bool:
        """True if its trials are complete."""
        return self.count > TRIALS

    def add_pace(self, pace: float) -> None:
        """Record the seconds per step of a chunk."""
        self.paces.append(pace)
        self.least = min(self.least, pace)

    def repeat(self) -> None:
        """Time the candidate again, with another chunk to warm up."""
        self.count = 0


class FastestSelector(Generic[CandidateType]):
    """Selects the fastest candidate so far; each is timed when it becomes ready.

    `others` creates the candidates that need a compiler; it is called once the first one has
    taken `compile_after` seconds, so that short runs compile nothing. The times that a `former`
    selector has measured for the same program on other arrays are used until new times exist. A
    candidate counts by the least of its last `history` times.
    """

    def __init__(
        self,
        workers: Workers,
        first: CandidateType,
        others: Callable[[], list[CandidateType]],
        compile_after: float = COMPILE_AFTER_SECONDS,
        former: FastestSelector[CandidateType] | None = None,
        history: int = TRIALS,
    ) -> None:
        self._workers = workers
        self._compile_after = compile_after
        self._history = history
        self._others: Callable[[], list[CandidateType]] | None = others
        self._former_paces = {} if former is None else former._latest_paces()
        self._trials = [self._trials_of(first, ())]
        self._current = 0
        self._ready: list[bool] = []
        self._chunks, self._recheck = 0, RECHECK
        self._spent, self._steps = 0.0, 0  # of the first candidate, before there are others

    def _trials_of(
        self, candidate: CandidateType, paces: Iterable[float]
    ) -> _Trials[CandidateType]:
        trials = _Trials(candidate, deque(paces, maxlen=self._history))
        if trials.paces:
            trials.least, trials.count = trials.pace, TRIALS + 1
        return trials

    @property
    def current(self) -> CandidateType:
        """The candidate in use."""
        return self._trials[self._current].candidate

    @property
    def is_undecided(self) -> bool:
        """True if only the first candidate was used so far."""
        return self._others is not None

    @property
    def has_one_candidate(self) -> bool:
        """True if only one candidate exists."""
        return self._others is None and len(self._trials) == 1

    def add_measurement(self, seconds: float, steps: int) -> None:
        """Record the seconds of the last steps, and select the candidate for the next ones.

        Every worker calls it after each chunk; all change at the same time, by the clock of worker
        0.
        """
        if self._others is not None:
            self._spent += seconds
            self._steps += steps
            if not self._is_worth_compiling():
                return
            self._create_others(self._others)
        else:
            trials = self._trials[self._current]
            trials.count += 1
            if trials.count > 1:  # the first chunk warms up
                trials.add_pace(seconds / steps)
        if len(self._trials) > 1:
            self._select()

    def _is_worth_compiling(self) -> bool:
        """Return True on all workers if the first candidate has taken long enough."""
        is_worth = self._workers.rank == 0 and self._spent > self._compile_after
        return bool(self._workers.allreduce_max(int(is_worth)))

    def _create_others(self, others: Callable[[], list[CandidateType]]) -> None:
        """Create the other candidates, with the times that the former selector has measured."""
        candidates, self._others = [self.current, *others()], None
        self._trials = [self._trials_of(x, self._former_paces.get(x.name, ())) for x in candidates]
        self._trials[0].add_pace(self._spent / self._steps)

    def _select(self) -> None:
        """Select the candidate for the next chunk, which all workers agree on."""
        ready = [not self._workers.allreduce_max(int(not x.is_ready())) for x in self.candidates]
        self._reconsider(ready)
        following = self._workers.allreduce_max(self._next(ready) if self._workers.rank == 0 else 0)
        was_chosen = self._trials[self._current].count > TRIALS + 1  # used after its trials
        if following != self._current and was_chosen:
            # The fastest has become slow, perhaps because the machine is busy: time the others
            # soon.
            self._chunks, self._recheck = 0, RECHECK
        self._current = following

    @property
    def candidates(self) -> list[CandidateType]:
        """The candidates so far, the first one first."""
        return [x.candidate for x in self._trials]

    def _reconsider(self, ready: list[bool]) -> None:
        """Time candidates again whose recorded times may be outdated.

        Times are too high while a compiler runs concurrently. A machine that was busy then may be
        idle now, so the other candidates are timed again at increasing intervals.
        """
        self._chunks += 1
        if self._ready and ready != self._ready:
            for trials in self._trials:
                if trials.paces:
                    trials.repeat()
        elif self._chunks == self._recheck:
            self._chunks, self._recheck = 0, 2 * self._recheck
            best = min([x.pace for x in self._trials])
            for i, trials in enumerate(self._trials):
                if i != self._current and trials.least < RETRIAL_LIMIT * best:
                    trials.repeat()
        self._ready = ready

    def _latest_paces(self) -> dict[str, deque[float]]:
        """Return the latest seconds per step of each candidate, by name; those of the former
        selector where no new ones exist."""
        return self._former_paces | {x.candidate.name: x.paces for x in self._trials if x.paces}

    def _next(self, ready: list[bool]) -> int:
        """Return a candidate that has not been timed yet, otherwise the fastest by the latest
        times.

        A candidate that becomes slow on a busy machine is replaced by the next best.
        """
        for i, trials in enumerate(self._trials):
            if ready[i] and not trials.is_timed and (i > 0 or not any(ready[1:])):
                return i
        timed = [i for i, trials in enumerate(self._trials) if trials.paces and ready[i]]
        return min(timed, key=lambda i: self._trials[i].pace, default=0)

    def close(self) -> None:
        """Stop running compilations."""
        for candidate in self.candidates:
            candidate.close()
