"""The costs of single layers under an option: the bytes and operations of the busiest worker."""

from dataclasses import replace
from math import ceil, inf

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import magmath as mm
from magmath.cost import GemmRate, load_machine
from magmath.parallel.planner.costs import CostModel, CostTables
from magmath.parallel.planner.layer_grouping import layer_graph
from magmath.parallel.planner.layer_options import PlannerMesh

MEMORY_BOUND = replace(
    load_machine("ethernet-10g"),
    gemm=(GemmRate("float32", 1, inf),), arithmetic=inf, call_seconds=0.0, tile=(1, 1),
)  # fmt: skip
"""A machine on which only the traffic of the memory takes time."""


@pytest.fixture(autouse=True)
def _pool():
    with mm.init(workers=0):
        yield


def _tables(network, shape, mesh, machine=MEMORY_BOUND, **settings):
    return CostTables(
        layer_graph(network, shape), PlannerMesh(mesh), CostModel(machine, **settings)
    )


def _cost(tables, option, number=1):
    return tables.layer_cost(tables.graph.layers[number], option)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.tuples(st.integers(8, 64), st.integers(8, 64), st.integers(8, 64)),
    workers=st.integers(1, 8),
)
def test_the_busiest_worker_reads_what_its_option_leaves_whole(sizes, workers):
    samples, inputs, outputs = sizes
    tables = _tables(mm.nn.Dense(outputs, bias=False), (samples, inputs), (workers,))
    for option, (n, i, o) in {
        "batch": (ceil(samples / workers), inputs, outputs),
        "output": (samples, inputs, ceil(outputs / workers)),
        "input": (samples, ceil(inputs / workers), outputs),
        "replicated": sizes,
    }.items():
        seconds = 4 * (n * i + i * o + n * o) / MEMORY_BOUND.worker_bandwidth(workers, 1)
        assert _cost(tables, (option,)).forward == pytest.approx(seconds), option


def test_an_element_wise_layer_divides_its_values_as_the_busiest_worker_does():
    tables = _tables(mm.nn.Sequential(mm.nn.Residual(mm.nn.Dense(6))), (5, 6), (4,))
    bandwidth = MEMORY_BOUND.worker_bandwidth(4, 1)
    number = next(i for i, x in enumerate(tables.graph.layers) if x.kind == "add")
    assert _cost(tables, ("batch",), number).forward == pytest.approx(4 * 3 * 2 * 6 / bandwidth)
