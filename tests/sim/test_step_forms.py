"""Each worker decides by its own clock when its calls become native segments, so the segments
must replace no instruction in which workers synchronize, whether this worker has a part in it or
not."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from counting_communicator import CountingCommunicator
from engines import current, engine_of
from executors import Compiled
from magmath.comm.isolated_communicator import IsolatedCommunicator
from magmath.executor import isolated_run, native_build, tiers
from magmath.executor.bind import Binding
from magmath.executor.native import write_segments
from magmath.executor.numpy_fast_path import without_fp_warnings
from magmath.graph import Graph, Node
from magmath.layout import Layout, Mesh
from magmath.ops.redistribute import redistribute
from magmath.program.instructions import Program
from operation_bodies import applied, leaf
from operation_table import ROWS, cases

POOLS = [("shared", 2), ("shared", 3), ("messages", 3), ("exact", 2)]
some = settings(max_examples=4)


def counting(rank: int, size: int, shares_memory: bool) -> CountingCommunicator:
    """The communicator of an isolated worker that counts its calls."""
    return CountingCommunicator(IsolatedCommunicator(rank, size, shares_memory))


def synchronizations(binding: Binding, position: int) -> int:
    """How often the bound calls of an instruction synchronize this worker with others."""
    comm = binding.tensors.context.comm
    assert isinstance(comm, CountingCommunicator)
    comm.reset()
    with suppress(Exception):  # of the arbitrary operands
        for _, call in binding.step.calls_at([position]):
            without_fp_warnings(call)
    return comm.calls.total() - comm.calls["exchange"] + comm.messages


def check_segments(program: Program, *, shares_memory: bool, exact: bool) -> int:
    """Assert that no worker's segments synchronize; return the number of their instructions."""
    replaced = 0
    for rank in range(program.workers):
        binding, _ = isolated_run._binding(program, rank, shares_memory)
        source = write_segments(program, binding.tensors, exact=exact)
        for segment in () if source is None else source.segments:
            for position in segment.positions:
                instruction = program.instructions[position]
                assert getattr(instruction, "workspace", None) is None, instruction
                assert synchronizations(binding, position) == 0, (rank, instruction)
                replaced += 1
    return replaced


@pytest.mark.parametrize("name", sorted(ROWS))
@given(data=st.data())
@some
def test_segments_replace_no_instruction_in_which_workers_synchronize(
    name: str, data: st.DataObject
) -> None:
    kind, workers = data.draw(st.sampled_from(POOLS))
    engine, case = engine_of(kind, workers), data.draw(cases(ROWS[name]))
    if data.draw(st.booleans()):
        node = applied(engine, name, case)
    else:  # only one worker has the operands and the result
        one = Mesh(1, workers=(data.draw(st.integers(0, workers - 1)),))
        node = applied(
            engine, name, case, [Layout.replicated_on(x.shape, one) for x in case.operands]
        )
        node = redistribute(node, Layout.replicated_on(node.shape, one))
    graph = engine.pending_graph(Graph((node, *_company(engine))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(isolated_run, "IsolatedCommunicator", counting)
        replaced = check_segments(
            engine.compile(graph).program,
            shares_memory=engine.pool.topology.shares_memory,
            exact=data.draw(st.booleans()),
        )
    assert replaced, "the company of the operation has a native form"


def _company(engine: Any) -> list[Node]:
    """Element-wise work of all workers, with which other instructions may form a segment."""
    x = leaf(engine, torch.arange(60.0), Layout.even((60,), engine.environment.mesh, 0))
    return [(x * x + x) * x]


@pytest.mark.parametrize("native_on", [0, 1])
@pytest.mark.timeout(60)
def test_workers_may_differ_in_the_form_of_a_step(
    native_on: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker inverts a matrix while the other has only element-wise work, compiled or not."""
    monkeypatch.setattr(native_build, "NativeBuild", Compiled)
    monkeypatch.setattr(tiers, "COMPILE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "SHORT_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "SAMPLE_SECONDS", 0.0)
    calls = tiers._SegmentsTier.calls

    def chosen(self: Any, binding: Binding) -> Any:
        own = binding.tensors.rank == native_on
        return calls(self, binding) if own else binding.step

    monkeypatch.setattr(tiers._SegmentsTier, "calls", chosen)
    values = np.random.default_rng(0)
    a, x = values.random((150, 150)) + 150 * np.eye(150), values.random((300, 200))
    with current("shared", 2):
        compiled = mm.compile(lambda a, x: (mm.linalg.inv(a), (x * 2.0 + x) * x - 1.0))
        operands = mm.asarray(a), mm.asarray(x)
        for _ in range(12):
            inverse, other = compiled(*operands)
        np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(a), atol=1e-12)
        np.testing.assert_array_equal(other.numpy(), (x * 2.0 + x) * x - 1.0)
