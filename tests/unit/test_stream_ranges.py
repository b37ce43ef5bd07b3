"""Generators of different kinds with one seed draw from disjoint ranges of streams."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.engine.traces import stream_ranges

RANGES = {name: first for name, first in vars(stream_ranges).items() if name.endswith("_STREAMS")}


def _range_of(stream: int) -> str:
    """The name of the range that contains a stream."""
    return max((first, name) for name, first in RANGES.items() if first <= stream)[1]


def test_ranges_are_disjoint_and_large() -> None:
    bounds = [*RANGES.values(), 1 << 63]
    assert bounds[0] == 0
    assert all(end - first >= 1 << 40 for first, end in pairwise(bounds))
    modules = (bounds[-1] - stream_ranges.MODULE_STREAMS) // stream_ranges.STREAMS_OF_MODULE
    assert modules > 1 << 30


def test_every_generator_draws_from_its_own_range() -> None:
    with current("inline", 1):
        engine = session.engine()
        trainer = mm.train.Trainer(mm.nn.Dense(2), seed=1)
        drawn = {
            "user": engine.stream_state.next,
            "initial": engine.initial_stream_state.next,
            "trainer": trainer.stream().next,
            "generator": mm.random.Generator(1)._state.next,
            "module": int(mm.nn.RngState()[1]),
        }
    assert {kind: _range_of(stream) for kind, stream in drawn.items()} == {
        kind: f"{kind.upper()}_STREAMS" for kind in drawn
    }


def test_generators_of_one_seed_draw_different_numbers() -> None:
    with current("inline", 1):
        mm.random.seed(3)
        users = mm.random.normal(shape=(50,)).numpy()
        own = mm.random.Generator(3).normal(shape=(50,)).numpy()
    assert not np.isin(users, own).any()
