"""Table 1 of the dMath paper: the inputs of the simulation, and its accuracy."""

from dataclasses import replace

import pytest

import magmath as mm
from magmath.cost import load_machine
from magmath.errors import MagmathError
from magmath.parallel.planner import layer_graph, measured_speed, plan_graph
from magmath.reproduce import EXPERIMENTS
from magmath.reproduce.dmath_table1 import COLUMNS, PAPER_MACHINE, _graphs, simulated_rows


@pytest.fixture(scope="module")
def graphs():
    with mm.init(workers=0):
        return {column.title: _graphs(column) for column in COLUMNS[:2]}


def test_only_the_first_row_enters(graphs):
    column = COLUMNS[1]
    rows = simulated_rows(column, graphs[column.title])
    other = replace(column, paper=(column.paper[0], *[1.0] * 6))
    changed = simulated_rows(other, graphs[column.title])
    assert [row.simulated for row in rows] == [row.simulated for row in changed]
    assert rows[0].simulated == pytest.approx(rows[0].paper)
    assert rows[1].as_data()["paper"] == 915


def test_most_rows_of_alexnet_are_within_a_fifth(graphs):
    errors = [
        abs(row.error)
        for column in COLUMNS[:2]
        for row in simulated_rows(column, graphs[column.title])[1:]
    ]
    assert len(errors) == 12
    assert sum(error <= 0.21 for error in errors) >= 10


def test_placement_matters_only_where_a_host_is_not_full(graphs):
    for column in COLUMNS[:2]:
        for row in simulated_rows(column, graphs[column.title]):
            assert (row.spread < row.simulated) == (row.workers in (4, 8)), row


def test_the_given_speed_is_met(graphs):
    graph = graphs["AlexNet 256"][256]
    for given in (100.0, 533.0):
        speed = measured_speed(graph, PAPER_MACHINE, given)
        made = plan_graph(graph, PAPER_MACHINE, strategy="data", speed=speed)
        assert made.samples_per_second == pytest.approx(given)
    tiny = replace(load_machine(PAPER_MACHINE), memory=1.0)  # speeds have no limit of memory
    assert measured_speed(graph, tiny, 100.0) == measured_speed(graph, PAPER_MACHINE, 100.0)
    for impossible in (1e9, 1e-9):
        with pytest.raises(MagmathError, match="at least .* and at most"):
            measured_speed(graph, PAPER_MACHINE, impossible)


def test_fixed_strategies():
    with mm.init(workers=0):
        graph = layer_graph(mm.nn.Sequential(mm.nn.Dense(64), mm.nn.Dense(8)), (32, 16))
    made = plan_graph(graph, PAPER_MACHINE, 4, strategy="model")
    assert set(made.options.values()) == {("output",)}
    assert made.gap is None
    with pytest.raises(MagmathError, match="there are auto, data"):
        plan_graph(graph, PAPER_MACHINE, 4, strategy="gossip")


def test_table_1_is_an_experiment():
    assert EXPERIMENTS["dmath-table1"].reference == "dMath paper, Table 1"
