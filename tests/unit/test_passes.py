"""The passes: whatever they do to a graph, it computes the same; and what each of them is there for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from engines import engine_of
from graphs import expressions, numpy_values, stepping
from magmath.array.engine import data_of
from operation_bodies import values

KINDS = [("inline", 1), ("shared", 2), ("shared", 3), ("shared", 4), ("messages", 2),
         ("messages", 3), ("exact", 3)]  # fmt: skip
found = [Phase.explicit, Phase.reuse, Phase.generate]
random_graphs = settings(max_examples=40, suppress_health_check=list(HealthCheck), phases=found)
every_kind = pytest.mark.parametrize(
    ("kind", "workers"), KINDS, ids=[f"{n}-{kind}" for kind, n in KINDS]
)


# the same values ---------------------------------------------------------------------------------


@every_kind
@given(data=st.data())
@random_graphs
def test_planned_expressions_compute_what_numpy_does(
    kind: str, workers: int, data: st.DataObject
) -> None:
    engine = engine_of(kind, workers)
    outputs, known = data.draw(expressions(engine))
    expected = numpy_values(outputs, dict(known))
    for result, value in zip(values(engine, *outputs), expected, strict=True):
        np.testing.assert_allclose(result.numpy(), value, rtol=1e-10, atol=1e-10)
    for leaf, value in known.items():
        np.testing.assert_array_equal(engine.pool.get(data_of(leaf).handle).numpy(), value)


@every_kind
@given(data=st.data())
@random_graphs
def test_planned_steps_compute_what_numpy_does(
    kind: str, workers: int, data: st.DataObject
) -> None:
    """Several steps in one run, twice: storage that is overwritten, read by others, and kept."""
    engine = engine_of(kind, workers)
    steps = data.draw(stepping(engine))
    graph = engine.cut(steps.graph)
    compiled = engine.compile(graph)
    for count in (data.draw(st.integers(1, 4)), 1, 2):
        outputs, run = engine.run(compiled, graph.leaves, steps=count)
        for target, fresh in zip(graph.targets, outputs, strict=True):
            assert target is not None
            target.value.set(fresh)
        expected = [value for _ in range(count) for value in steps.advance()]
        np.testing.assert_allclose(run.values(), expected, rtol=1e-9, atol=1e-9)
        for leaf, value in steps.values.items():
            held = engine.pool.get(data_of(leaf).handle).numpy()
            np.testing.assert_allclose(held, value, rtol=1e-9, atol=1e-9)
