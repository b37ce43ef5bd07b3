"""Measured speeds of operations: how they are used, and how they follow from samples."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

import magmath as mm
from engines import NOTHING_IS_SMALL
from magmath.bench.case import Case
from magmath.bench.operation_calibration import Sample, _rates, _samples, operation_rates
from magmath.bench.result import BenchResult, CaseResult, SystemResult
from magmath.bench.result_output import save_result
from magmath.bench.result_plots import plot_result
from magmath.bench.simulation_accuracy import kendall_tau, simulation_accuracy
from magmath.core.dtypes import float64
from magmath.cost import Machine, OperationRate
from magmath.cost.operation_rate import is_counted_in_flops, rate_name
from magmath.cost.roofline import compute_seconds
from magmath.engine import session
from magmath.layout import Layout, Mesh
from magmath.ops import elementwise as e
from magmath.ops.leaves import input_leaf
from magmath.passes.environment import Environment

ADD = OperationRate("add", 1, 1.0, ((100.0, 0.01), (10_000.0, 0.03)))


def _environment(*rates):
    machine = Machine(operations=rates, bandwidth=1e12)
    return Environment(Mesh((1,)), machine.shared, shares_memory=True, machine=machine)


def _seconds(node, environment):
    layouts = [operand.layout for operand in node.inputs]
    whole = Layout.replicated_on(node.shape, environment.mesh)
    return compute_seconds(node, layouts, whole, environment)


def _leaf(*shape):
    return input_leaf(shape, float64, Layout.replicated_on(shape, Mesh((1,))), None)


@pytest.mark.parametrize(
    ("nbytes", "each"), [(10.0, 0.01), (100.0, 0.01), (1000.0, 0.02), (1e4, 0.03), (1e9, 0.03)]
)
def test_speeds_are_interpolated_between_measured_sizes(nbytes, each):
    assert ADD.seconds(7.0, nbytes) == pytest.approx(1.0 + nbytes * each)


def test_flops_count_where_they_grow_faster_than_arrays():
    sort = OperationRate("sort", 1, 2.0, ((100.0, 0.5),))
    assert sort.seconds(8.0, 100.0) == pytest.approx(6.0)


def test_a_node_is_priced_by_the_rate_of_its_operation():
    node = e.add(_leaf(50), _leaf(50))  # 1200 bytes
    assert _seconds(node, _environment(ADD)) == pytest.approx(ADD.seconds(50.0, 1200.0))
    other = replace(ADD, name="multiply")
    assert _seconds(node, _environment(other)) < 1e-6  # by the general rates


def test_the_nearest_number_of_threads_counts():
    machine = Machine(operations=(ADD, replace(ADD, threads=8, fixed=9.0)))
    assert machine.operation_rate("add", 2).fixed == 1.0
    assert machine.operation_rate("add", 7).fixed == 9.0
    assert machine.operation_rate("sub", 1) is None
    stored = msgspec.json.decode(msgspec.json.encode(machine), type=Machine)
    assert stored == machine


@pytest.mark.parametrize(
    ("shape", "axis", "name"),
    [((99, 8), 1, "sum of short rows"), ((99, 8), 0, "sum"), ((9, 800), 1, "sum")],
)
def test_reductions_of_short_rows_have_a_rate_of_their_own(shape, axis, name):
    with mm.init():
        node = mm.sum(mm.ones(shape), axis=axis).node
        assert rate_name(node) == name


@pytest.mark.parametrize(
    ("filters", "options", "kind"),
    [
        ((4, 4, 3, 3), {"padding": 1}, " of 3×3 elements"),
        ((4, 4, 3, 3), {"stride": 2}, ""),
        ((4, 4, 3, 3), {"dilation": 2}, ""),
        ((4, 4, 1, 1), {}, ""),
        ((4, 1, 3, 3), {"groups": 4}, " of groups"),
    ],
)
def test_convolutions_have_rates_by_their_filters(filters, options, kind):
    with mm.init():
        x, w = mm.ones((2, 4, 8, 8)), mm.ones(filters)
        y = mm.nn.functional.conv(x, w, **options)
        gradients = y.node.operation.vjp(y.node, y.node)
        rates = [rate_name(node) for node in (y.node, *gradients)]
    names = "correlation", "correlation_input", "correlation_kernel"
    assert rates == [name + kind for name in names]
    assert all(is_counted_in_flops(rate) for rate in rates)


def test_rates_of_convolutions_are_those_of_float32():
    rate = OperationRate("correlation", 1, 100.0, ())
    with mm.init():
        x, w = mm.ones((2, 4, 8, 8)), mm.ones((4, 4, 1, 1))
        for dtype, is_measured in (mm.float32, True), (mm.float64, False):
            node = mm.nn.functional.conv(mm.astype(x, dtype), mm.astype(w, dtype)).node
            leaves = tuple(
                [
                    input_leaf(a.shape, a.dtype, Layout.replicated_on(a.shape, Mesh((1,))), None)
                    for a in node.inputs
                ]
            )
            seconds = _seconds(node.with_inputs(leaves), _environment(rate))
            assert (seconds > 99.0) is is_measured


def test_rates_follow_from_samples():
    samples = [
        {"add": [(3.0, 1.0, 1.0), (2.0, 1.0, 1.0)], "dynamic_slice": [(5.0, 1.0, 1.0)]},
        {"add": [(12.0, 100.0, 20000.0)], "dynamic_slice": [(4.0, 0.0, 0.0)]},
        {"add": [(1002.0, 500.0, 400000.0)]},
    ]
    made = [{name: [Sample(*s) for s in some] for name, some in one.items()} for one in samples]
    add, window = _rates(made, 0.5, 4)
    assert add == OperationRate("add", 4, 1.5, ((20000.0, 0.1), (400000.0, 2.0)))
    assert window == OperationRate("dynamic_slice", 4, 4.5, ())


def test_calibration_measures_operations_of_programs(monkeypatch):
    monkeypatch.setattr("magmath.bench.operation_calibration.SIZES", (64, 2048, 4096))
    monkeypatch.setattr("magmath.bench.operation_calibration.MATRICES", (4, 8, 12))
    images = (1, 4, 4), (2, 8, 9), (2, 16, 12)
    monkeypatch.setattr("magmath.bench.operation_calibration.IMAGES", images)
    monkeypatch.setattr("magmath.bench.operation_calibration.RUN_SECONDS", 0.0)
    actual = {rate.name: rate for rate in operation_rates(Machine(), 1)}
    expected = {"add", "exp", "sum", "sum of short rows", "sort", "take", "concat", "cholesky"}
    assert expected <= actual.keys()
    for name in ("correlation", "correlation_input", "correlation_kernel"):
        assert {name, f"{name} of 3×3 elements", f"{name} of groups"} <= actual.keys()
    assert "gemm" not in actual
    assert all(rate.fixed >= 0 and rate.threads == 1 for rate in actual.values())
    assert len(actual["add"].speeds) == 2


def test_samples_have_the_work_of_their_instructions():
    with mm.init():
        session.engine().small_sizes = NOTHING_IS_SMALL
        x = mm.asarray(np.ones(1000))
        samples = dict(_samples(lambda: x + 1.0))
        assert samples["add"].nbytes == pytest.approx(16_000, abs=8)
        assert samples["add"].work == samples["add"].nbytes


def test_rank_correlation():
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 40]) == 1.0
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]) == -1.0
    assert kendall_tau([1, 2, 3], [1, 3, 2]) == pytest.approx(1 / 3)


def test_accuracy_of_simulated_steps(tmp_path):
    def case(workers, **seconds):
        systems = {
            name: SystemResult("measured", seconds=[m * 2, m * 3], record={"simulated_seconds": s})
            for name, (m, s) in seconds.items()
        }
        made = Case(f"{workers} workers", {"workers": workers}, 2.0, "s", "g", workers)
        return CaseResult(made, systems, [])

    cases = [case(1, data=(1.0, 1.1)), case(2, data=(1.0, 0.7), model=(2.0, 2.0))]
    result = BenchResult("test", "a test", "n", True, 2, "", "", None, {}, {}, {}, {}, False, cases)
    actual = simulation_accuracy(result)
    assert [row.error for row in actual.rows] == pytest.approx([0.1, 0.3, 0.0])
    assert actual.median_error == pytest.approx(0.1)
    assert actual.worst.system == "data"
    assert actual.worst.case == "2 workers"
    assert actual.rankings == {"2 workers": 1.0}
    save_result(result, tmp_path / "result.json")
    saved = json.loads((tmp_path / "result.json").read_text())
    assert saved["simulation"]["worst_error"] == pytest.approx(0.3)
    plot_result(replace(result, plot="simulation", machine={"cpu": "x", "cores": 2}),
                tmp_path / "plot.png")  # fmt: skip
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert any("median 10.0%" in line for line in actual.lines())
    assert simulation_accuracy(replace(result, cases=[])) is None
