"""Choice among candidates by the calls of a running program.

A convolution of a large network takes tens of milliseconds, so that measuring every candidate
before the first step would delay it by minutes. Instead the first calls of a program execute one
candidate each, in turn, and are timed: every call computes a valid result. All calls with one key
share their measurements. The decision is stored by the tuner, as for products. It holds for one
number of threads, which is lower while other processes compute (`kernels/free_processors.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import torch

from magmath.core.type_aliases import BoundCall
from magmath.kernels.dispatch.measurements import Measurements
from magmath.kernels.dispatch.tuner import Tuner, no_wait


@final
@dataclass(frozen=True, slots=True)
class OnlineCandidate:
    """One candidate: a function that binds it, and one that returns False while its code is being
    compiled."""

    bind: Callable[[], BoundCall]
    is_ready: Callable[[], bool]


@final
class OnlineCall:
    """A call that executes and measures its candidates until the tuner has decided, and then the
    fastest one.

    The default is the first candidate.
    """

    def __init__(
        self,
        tuner: Tuner,
        key: str,
        candidates: Mapping[str, OnlineCandidate],
        synchronize: BoundCall = no_wait,
    ) -> None:
        self._tuner, self._key, self._candidates = tuner, key, candidates
        self._synchronize = synchronize
        self._bound: dict[tuple[int, str], BoundCall] = {}
        self._chosen: dict[int, BoundCall] = {}
        """By number of threads."""

    def __call__(self) -> None:
        chosen = self._chosen.get(torch.get_num_threads())
        if chosen is not None:
            chosen()
            return
        names = tuple(self._candidates)
        choice = self._tuner.known_choice(self._key, names)
        if choice is None:
            measurements = self._tuner.measurements(self._key, names)
            is_ready = {name: candidate.is_ready for name, candidate in self._candidates.items()}
            name = measurements.next_candidate(is_ready)
            if name is not None:
                self._measure(measurements, name)
                return
            choice = self._tuner.decide(self._key, measurements)
        call = self._call_of(choice)
        self._chosen[torch.get_num_threads()] = call
        self._bound.clear()
        call()

    def _call_of(self, name: str) -> BoundCall:
        """Return the bound call of a candidate, for the current number of threads."""
        key = torch.get_num_threads(), name
        if key not in self._bound:
            self._bound[key] = self._candidates[name].bind()
        return self._bound[key]

    def _measure(self, measurements: Measurements, name: str) -> None:
        """Execute a candidate, and record its time."""
        is_first = (torch.get_num_threads(), name) not in self._bound
        call = self._call_of(name)
        self._synchronize()
        start = time.perf_counter()
        call()
        self._synchronize()
        measurements.add(name, time.perf_counter() - start, is_first)
