"""The number of calls, builds and plans of Python between an operator and its computation."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from weakref import ref

import numpy as np
import pytest

import magmath as mm
from engines import NOTHING_IS_SMALL, current
from magmath.core.stage_times import recording
from magmath.engine import session
from magmath.engine.number_checks import NumberChecks
from magmath.engine.programs import program_table
from magmath.engine.programs.pending_graph import pending_graph
from magmath.graph import Graph, structure_of, topological
from magmath.ops import elementwise as e
from magmath.runtime import Pool

EXTENT = 1024


@pytest.fixture(autouse=True)
def pool() -> Iterator[Pool]:
    """A fresh engine on the worker of this process."""
    with current("inline") as pool:
        yield pool


def calls_of(function: Callable[[], object], repeats: int = 1) -> float:
    """Return the number of calls of Python functions in one call of a function."""
    count = 0

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        for _ in range(repeats):
            function()
    finally:
        sys.setprofile(None)
    return count / repeats - 1  # the function itself


def operands() -> tuple[mm.Array, mm.Array]:
    return mm.asarray(np.zeros(EXTENT, np.float32)), mm.asarray(np.ones(EXTENT, np.float32))


def test_an_update_passes_few_stations() -> None:
    x, y = operands()

    def update() -> None:
        nonlocal x
        x += 2 * y

    update()
    assert calls_of(update, 3000) <= 80
    assert float(x[0]) == 2 * 3001


def test_a_compiled_call_passes_few_stations() -> None:
    function = mm.compile(lambda x, y: x + 2 * y)
    x, y = operands()

    def call() -> None:
        nonlocal x
        x = function(x, y)

    for _ in range(20):
        call()
    assert calls_of(call, 100) <= 30
    assert float(x[0]) == 2 * 120


def test_a_known_expression_is_neither_built_nor_planned_again() -> None:
    session.engine().small_sizes = NOTHING_IS_SMALL
    x, y = operands()
    with recording() as times:
        for i in range(5):
            z = mm.exp(x - 0.5 * i) * y + x[1:3].sum()
            assert float(z.sum()) > 0
    assert times.counts["programs"] == 1
    assert times.counts["look up"] == 1


def test_equal_structures_have_equal_graphs() -> None:
    engine = session.engine()
    engine.small_sizes = NOTHING_IS_SMALL
    leaves = [mm.asarray(np.ones(shape, np.float32)) for shape in ((3,), (2, 3), (3,))]
    mm.evaluate(*leaves)
    known: dict[Any, tuple[Any, list[Any]]] = {}
    graphs: dict[Any, Any] = {}
    for seed in range(300):
        nodes = _expression(random.Random(seed % 200), leaves)
        order = topological(nodes, pending=True)
        structure, actual = structure_of(order, nodes, ())
        graph = pending_graph(Graph(nodes), order)
        places = [actual.index(leaf) for leaf in graph.leaves]
        assert sorted(places) == list(range(len(actual)))
        assert known.setdefault(structure, (graph.key, places)) == (graph.key, places)
        assert graphs.setdefault(graph.key, structure) == structure
    assert len(known) > 30


def _expression(choice: random.Random, leaves: list[mm.Array]) -> tuple[Any, ...]:
    """Return the nodes of a random expression of some evaluated and pending arrays."""
    pool = list(leaves)
    for _ in range(choice.randrange(1, 5)):
        x, y = choice.choice(pool), choice.choice(pool)
        kind = choice.randrange(3)
        made = (x + y.sum(), x * choice.random(), x * x)[kind]
        if choice.random() < 0.3:
            mm.evaluate(made)
        pool.append(made)
    return tuple({x.node: None for x in (pool[-1], choice.choice(pool)) if x.node.inputs}) or (
        (leaves[0] + leaves[2]).node,
    )


def test_long_chains_of_nodes_are_released() -> None:
    """The destructors of structs do not recurse."""
    node = (operands()[0] + 1).node
    start = ref(node)
    for _ in range(100_000):
        node = e.add(node, node)
    with pytest.raises(AttributeError):
        node.shape = ()  # type: ignore[misc]
    del node
    assert start() is None


def lines_of(function: Callable[[], object]) -> int:
    """Return the number of lines of Python that a call of a function executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    former = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(former)
    return count


@pytest.mark.parametrize("is_number", [False, True])
def test_checks_of_operands_are_found_in_linear_time(
    is_number: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a chain of indices, each computed from the one before."""
    lines = []

    def counted(*arguments: Any) -> NumberChecks:
        lines.append(lines_of(lambda: NumberChecks(*arguments)))
        return NumberChecks(*arguments)

    monkeypatch.setattr(program_table, "NumberChecks", counted)
    v = mm.variable("v", 0)
    for length in (20, 80):

        def follow(table: Any, first: Any, length: int = length) -> None:
            i, total = first, 0
            for _ in range(length):
                if is_number:
                    i = i * 2 % 7
                    total = total + table[i]
                else:
                    i = mm.take(table, i)
            v.assign(total if is_number else i)

        mm.compile(follow)(mm.arange(8), 1 if is_number else mm.asarray(1))
    assert len(lines) == 2
    assert 0 < lines[1] < 5 * lines[0]
