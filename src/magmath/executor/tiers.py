"""Tiered execution of runs of one step: replayed at first, by native segments once they are hot.

A Python loop that evaluates the same expression, or calls the same compiled function, runs one
program many times with one step each. After `MIN_RUNS` runs, and the seconds that justify a
compilation, the runs of instructions that have a native form are compiled in the background. The
native segments are then timed on the current runs, and the faster tier continues.

A result must not depend on how often a program has run before. Native segments therefore contain
only instructions whose native form gives the bits of their kernel (`Operation.has_same_bits`); the
others remain bound calls. For the same reason each worker can decide alone: its messages and
barriers are the same in both tiers.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import final

from magmath.core import thread_placement
from magmath.executor.bind import Binding
from magmath.executor.call_list import CallList
from magmath.executor.fastest_selector import (
    COMPILE_AFTER_SECONDS,
    CandidateExecutor,
    FastestSelector,
    OneWorker,
    writing_factor,
)
from magmath.executor.native_forms import NativeForms
from magmath.kernels import free_processors

MIN_RUNS = 3
SAMPLE_SECONDS = 2e-3
"""Runs are timed in samples of at least this many seconds."""
HISTORY = 64
"""Number of recent samples of a tier, of which the least counts: other processes slow some of
them."""
LONG_SECONDS = 2e-4
"""Runs that take longer adapt the number of threads to the free processors."""
SHORT_SECONDS = 2e-5
"""Of runs that take less, only one of `SAMPLED` is timed: two readings of the clock take as long as
a tenth of them."""
SAMPLED = 8


@final
class _ReplayTier(CandidateExecutor):
    name = "replay"

    def is_ready(self) -> bool:
        return True

    def close(self) -> None: ...


@final
class _SegmentsTier(CandidateExecutor):
    """The native segments."""

    name = "segments"

    def __init__(self) -> None:
        self._forms = NativeForms(exact=True)

    def write(self, binding: Binding) -> bool:
        """Start compiling the segments of a binding; return False if it has none."""
        return self._forms.segments(binding) is not None

    def calls(self, binding: Binding) -> CallList:
        """Return the calls of a step."""
        if binding.compiled is None:
            segments = self._forms.segments(binding)
            if segments is None or not segments.is_ready():
                return binding.step
            shared: CallList | None = None  # calls with the same segments
            former = None if binding.former is None else binding.former.binding
            if former is not None and former.signature == binding.signature:
                shared = self.calls(former)
            binding.compiled = binding.with_segments(segments.bind(binding.tensors), shared)
        return binding.compiled

    def is_ready(self) -> bool:
        return self._forms.has_compiled_segments()

    def close(self) -> None:
        self._forms.close()


@final
class Tiers:
    """Runs a program one step at a time, in the faster of two tiers."""

    def __init__(
        self,
        *,
        instructions: int,
        enabled: bool,
        deterministic: bool,
        place_threads: Callable[[], None],
    ) -> None:
        """`instructions`: their number in the program. `place_threads`: called before runs that are
        not short, and `thread_placement.end_run` after them."""
        self._deterministic, self._place_threads = deterministic, place_threads
        self._segments = _SegmentsTier()
        self._binding: Binding | None = None
        self._choice: FastestSelector[CandidateExecutor] = FastestSelector(
            OneWorker(), _ReplayTier(), self._compiled, 0.0, history=HISTORY
        )
        self._uses_segments = False
        self._seconds, self._runs = 0.0, 0
        self._skipped = 0  # runs between the last one that was timed and the next one
        self._untimed = 0  # those of them that are still to come
        due = COMPILE_AFTER_SECONDS * writing_factor(instructions)
        self._due = due if enabled else float("inf")
        self._least = MIN_RUNS

    def run(self, binding: Binding) -> list[float]:
        """Run one step; return the scalars that it emits. Must be called in
        `without_fp_warnings`."""
        is_long = not self._untimed  # no other thread computes in short ones
        try:
            if is_long:
                self._place_threads()
            if free_processors.has_limited:
                free_processors.begin_run()
            return self._run(binding)
        finally:
            if is_long:
                thread_placement.end_run()
            if free_processors.has_limited:
                free_processors.end_run()

    def _run(self, binding: Binding) -> list[float]:
        calls = self._segments.calls(binding) if self._uses_segments else binding.step
        if self._untimed:
            self._untimed -= 1
            return binding.run_once(calls)
        start = perf_counter()
        values = binding.run_once(calls)
        seconds = perf_counter() - start
        self._runs += 1 + self._skipped
        self._seconds += seconds * (1 + self._skipped)
        self._skipped = self._untimed = SAMPLED - 1 if seconds < SHORT_SECONDS else 0
        if seconds > LONG_SECONDS and not self._deterministic:
            free_processors.adapt_threads()
        if self._seconds > self._due and self._runs >= self._least:
            self._select_tier(binding)
        return values

    def _select_tier(self, binding: Binding) -> None:
        """Select the tier of the next runs by the seconds of the last ones."""
        self._binding = binding
        self._choice.add_measurement(self._seconds, self._runs)
        self._binding = None
        self._uses_segments = self._choice.current is self._segments
        self._seconds, self._runs = 0.0, 0
        self._least = 1
        self._due = float("inf") if self._choice.has_one_candidate else SAMPLE_SECONDS

    def _compiled(self) -> list[CandidateExecutor]:
        assert self._binding is not None
        return [self._segments] if self._segments.write(self._binding) else []

    def close(self) -> None:
        """Stop compiling, and release the compiled code."""
        self._choice.close()
