"""The costs of single layers under an option: the bytes and operations of the busiest worker."""

from dataclasses import replace
from math import ceil, inf

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import magmath as mm
from magmath.cost import GemmRate, load_machine
from magmath.errors import OptionError
from magmath.layout import Layout, Mesh, Split, plan_redistribution
from magmath.parallel.planner.costs import CostModel, CostTables, exchanges
from magmath.parallel.planner.layer_grouping import layer_graph
from magmath.parallel.planner.layer_options import PlannerMesh, received_bytes

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


@settings(deadline=None, max_examples=25)
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


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.tuples(st.integers(8, 40), st.integers(8, 40), st.integers(8, 40)),
    workers=st.integers(1, 8),
)
def test_memory_is_that_of_the_worker_with_the_largest_part(sizes, workers):
    samples, inputs, outputs = sizes
    tables = _tables(mm.nn.Dense(outputs, bias=False), (samples, inputs), (workers,))
    for option, (n, i, o, result, operand) in {
        "batch": (ceil(samples / workers), inputs, outputs, outputs, 0),
        "output": (samples, inputs, *2 * (ceil(outputs / workers),), inputs * (workers > 1)),
        "input": (samples, ceil(inputs / workers), outputs, ceil(outputs / workers), 0),
        "replicated": (*sizes, outputs, 0),
    }.items():
        expected = 4 * (3 * i * o + n * result + n * operand)
        assert _cost(tables, (option,)).memory == pytest.approx(expected), option


def test_uneven_parts_need_the_memory_of_the_next_even_ones():
    of_samples, of_outputs = (
        [
            mm.parallel.plan(mm.nn.Dense(n), (m, 8), "dgx-h200", 4, strategy=strategy).memory
            for n, m in extents
        ]
        for strategy, extents in {
            "data": [(16, 5), (16, 8)], "model": [(5, 16), (8, 16)],
        }.items()
    )  # fmt: skip
    assert of_samples[0] == of_samples[1]
    assert of_outputs[0] == of_outputs[1]


@pytest.mark.parametrize(
    ("mesh", "option", "share"),
    [((4,), ("input",), 2 / 5), ((4,), ("output",), 2 / 5), ((2, 2), ("output", "input"), 2 / 5)],
)
def test_element_wise_operations_follow_the_divided_outputs(mesh, option, share):
    """Pending sums over divided inputs are scattered over the outputs."""
    plain, active = (
        _tables(mm.nn.Dense(5, bias=False, activation=activation), (64, 1000), mesh)
        for activation in ("linear", "relu")
    )
    activation_bytes = active.graph.layers[1].other_bytes
    bandwidth = MEMORY_BOUND.worker_bandwidth(4, 1)
    difference = _cost(active, option).forward - _cost(plain, option).forward
    assert difference == pytest.approx(activation_bytes * share / bandwidth)


# exchanges within a layer -------------------------------------------------------------------------


def _received(tables, option):
    """The bytes that a worker receives within layer 1 in the forward pass."""
    collectives = exchanges(tables.graph.layers[1], option, tables.mesh)
    return sum(
        received_bytes(x.exchange, x.nbytes, tables.mesh)
        for x in collectives
        if x.phase == "forward"
    )


@settings(deadline=None, max_examples=25)
@given(
    workers=st.integers(2, 5),
    kernel=st.integers(1, 5),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 3),
    stride=st.integers(1, 3),
    rows=st.integers(30, 45),
    pools=st.booleans(),
)
def test_halos_are_those_of_redistributions(
    workers, kernel, padding, dilation, stride, rows, pools
):
    """A worker receives what its part of the result reads and its part of the operand lacks."""
    shape = (2, 3, rows, 14)
    if pools:
        padding, dilation = min(padding, kernel // 2), 1
        network = mm.nn.Sequential(
            mm.nn.Conv2d(3, 1),
            mm.nn.Lambda(
                lambda x: mm.nn.functional.avg_pool(x, kernel, stride=stride, padding=padding)
            ),
        )
    else:
        network = mm.nn.Conv2d(5, kernel, stride=stride, padding=padding, dilation=dilation)
    tables = _tables(network, shape, (workers,))
    have = Layout.replicated_on(shape, Mesh(workers))
    own = Split.even(0, shape[2], workers)
    reach = dilation * (kernel - 1) + 1
    results = Split.even(0, (rows + 2 * padding - reach) // stride + 1, workers)
    read = results.with_halo(
        lambda low, high: (stride * low - padding, stride * (high - 1) - padding + reach), rows
    )
    exact = plan_redistribution(have.replace_split(2, own), have.replace_split(2, read))
    received = [0] * workers
    for stage in exact.stages:
        for worker, traffic in stage.traffic.items():
            received[worker] += traffic.received
    assert _received(tables, ("space",)) == 4 * max(received)


def test_a_product_of_the_input_has_no_halo_backward():
    network = mm.nn.Sequential(*[mm.nn.Conv2d(4, 3, padding=1) for _ in range(2)])
    tables = _tables(network, (2, 3, 32, 32), (4,))
    phases = [
        [x.phase for x in exchanges(layer, ("space",), tables.mesh)]
        for layer in tables.graph.layers[1:3]
    ]
    assert phases == [["forward"], ["forward", "backward"]]


@pytest.mark.parametrize("mesh", [(4, 2), (2, 4)])
def test_other_divisions_make_halos_and_sums_smaller(mesh):
    network = mm.nn.Sequential(mm.nn.Conv2d(8, 3, padding=1, bias=False))
    tables = _tables(network, (16, 8, 32, 32), mesh)
    border = 4 * 16 * 8 * 32 * (2 if mesh[0] > 2 else 1)
    assert _received(tables, ("space", "replicated")) == border
    assert _received(tables, ("space", "batch")) == border / mesh[1]
    assert _received(tables, ("space", "output")) == border  # workers read whole rows of channels
    assert _received(tables, ("space", "space")) == 4 * 16 * 8 * 32 * 2
    pending = _received(tables, ("replicated", "input"))
    assert _received(tables, ("space", "input")) == border / mesh[1] + pending / mesh[0]


def test_sums_over_a_divided_role_are_of_the_samples_of_a_group():
    network = mm.nn.Sequential(mm.nn.Dense(512), mm.nn.LayerNorm())
    tables = _tables(network, (1024, 128, 512), (8, 8))
    sums = exchanges(tables.graph.layers[1], ("batch", "output"), tables.mesh)
    assert {(x.exchange.kind, x.exchange.axes) for x in sums} == {("allreduce", (1,))}
    assert {x.nbytes for x in sums} == {1024 * 128 * 4 / 8}
    whole = exchanges(tables.graph.layers[1], ("output", "output"), tables.mesh)
    assert {x.exchange.axes for x in whole} == {(0, 1)}
    assert exchanges(tables.graph.layers[1], ("batch", "batch"), tables.mesh) == []


# types --------------------------------------------------------------------------------------------


def _network():
    return mm.nn.Sequential(mm.nn.Conv2d(16, 3, padding=1), mm.nn.Flatten(), mm.nn.Dense(64))


def test_products_compute_in_their_own_type():
    whole, half = (
        mm.parallel.plan(
            _network(), (512, 16, 16, 16), "dgx-h200", 2, strategy="data", precision=precision
        )
        for precision in (None, "mixed-bfloat16")
    )
    products = [layer for layer in half.graph.layers if layer.has_product]
    assert {layer.dtype.name for layer in products} == {"bfloat16"}
    assert half.graph.parameter_bytes == whole.graph.parameter_bytes
    assert half.seconds < whole.seconds
    assert 2 * half.received == whole.received
    for ours, theirs in zip(
        products, (x for x in whole.graph.layers if x.has_product), strict=True
    ):
        assert (2 * ours.weights, 2 * ours.result) == (theirs.weights, theirs.result)
        assert [2 * p.gradient for p in ours.parameters] == [p.gradient for p in theirs.parameters]


def test_tokens_are_multiplied_in_the_type_of_their_embedding():
    network = mm.nn.Sequential(mm.nn.Embedding(100, 12), mm.nn.Dense(7))
    graph = layer_graph(network, (4, 9), "int64")
    assert {layer.dtype.name for layer in graph.layers if layer.has_product} == {"float32"}
    (product,) = [layer for layer in graph.layers if layer.has_product]
    machine = replace(MEMORY_BOUND, gemm=(GemmRate("int64", 1, 1.0), GemmRate("float32", 1, inf)))
    tables = CostTables(graph, PlannerMesh((1,)), CostModel(machine))
    assert tables.layer_cost(product, ("replicated",)).forward < 1.0


def test_unknown_precisions_are_refused():
    with pytest.raises(OptionError, match="precision 'half' is not known; there are float32"):
        mm.parallel.plan(mm.nn.Dense(3), (4, 5), precision="half")
