"""`explain` and `profile`: the planned bytes and messages, and the measurements of workers."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

import magmath as mm
from engines import current
from magmath.engine import session
from magmath.errors import MagmathError, ShapeError
from magmath.layout import plan_redistribution
from magmath.program.instructions import Redistribute

POOLS = [("planned", 1), ("shared", 2), ("messages", 3)]


def expression() -> tuple[mm.Array, np.ndarray]:
    """Two lines of arithmetic that have something to move, and their value."""
    values = np.arange(48, dtype="float32").reshape(8, 6) / 10
    x = mm.asarray(values, layout=mm.Layout.split(0))
    y = mm.exp(x * 0.1).redistribute(mm.Layout.split(1))
    return mm.sum(y @ x.mT, axis=0), (np.exp(values * 0.1) @ values.T).sum(axis=0)


def test_what_is_copied_to_be_shared_is_priced() -> None:
    """A gathered copy in shared memory costs no bytes between workers, and yet the time of
    copying, whether an array has its own memory or is a slice."""
    with current("shared", 2):
        x = mm.asarray(np.ones((1000, 500)), layout=mm.Layout.split(0))
        bandwidth = session.engine().environment.bandwidth
        for array in (x, x[2:, 4:]):
            total = array.replicate(wait=True).explain().total
            again = array.redistribute(mm.Layout.replicated()).explain().total
            for cost in (total, again):
                assert cost.seconds > 0.9 * array.size // 2 * 8 / bandwidth


@pytest.mark.parametrize("kind", POOLS[1:])
def test_redistributions_count_for_the_line_that_reads_the_result(kind: tuple[str, int]) -> None:
    with current(*kind):
        x = mm.asarray(np.ones((60, 60)), layout=mm.Layout.split(0))
        y = mm.asarray(np.ones((60, 60)), layout=mm.Layout.split(1))
        for wants in (
            lambda: x.redistribute(mm.Layout.split(1)),
            lambda: x.redistribute(mm.Layout.cyclic(0)) + 1.0,
            lambda: x + y,
            lambda: x @ y,
            lambda: mm.sort(y, axis=1),
            lambda: mm.linalg.diagonal(x, offset=3),
            lambda: mm.linalg.trace(y),
            lambda: mm.fft.fftn(x + 0j),
            lambda: mm.linalg.solve(x + mm.eye(60, dtype=mm.float64), y),
        ):
            cost = wants().explain()
            named = [group for group in cost.by_line() if group.name != "(no line)"]
            assert sum(group.nbytes for group in named) == cost.total.nbytes, cost
            unnamed = {step.operation for step in cost.instructions if step.line is None}
            assert unnamed <= {"barrier"}, cost


@pytest.mark.parametrize("kind", POOLS)
def test_sums_by_operation_and_by_line_are_the_totals(kind: tuple[str, int]) -> None:
    with current(*kind):
        explanation = expression()[0].explain()
        for groups in (explanation.by_operation(), explanation.by_line()):
            for field in ("count", "seconds", "nbytes", "messages"):
                total = getattr(explanation.total, field)
                assert sum(getattr(g, field) for g in groups) == pytest.approx(total)
        lines = [group.name for group in explanation.by_line() if group.name != "(no line)"]
        assert len(lines) == 2
        assert all(line.startswith(f"{__file__}:") for line in lines)
        assert explanation.total.measured is None


@pytest.mark.parametrize("kind", POOLS[1:])
def test_bytes_are_the_plans(kind: tuple[str, int]) -> None:
    with current(*kind):
        x, _ = expression()
        explanation = x.explain()
        mm.evaluate(x)
        assert x.node.value.origin is not None
        program = x.node.value.origin.program
        moved = sum(
            plan_redistribution(
                program.slots[i.source].layout, program.slots[i.target].layout
            ).total_bytes(4)
            for i in program.instructions
            if isinstance(i, Redistribute)
        )
        assert explanation.total.nbytes == moved > 0
        assert f"{moved:,} bytes moved" in str(explanation)


@pytest.mark.parametrize("kind", POOLS)
def test_a_profiled_run_is_measured_and_right(kind: tuple[str, int]) -> None:
    with current(*kind) as pool:
        x, truth = expression()
        predicted = x.explain()
        assert "measured" not in str(predicted).splitlines()[-1]
        with mm.profile() as profile:
            mm.evaluate(x)
        np.testing.assert_allclose(np.asarray(x), truth, rtol=1e-4)
        (run,) = profile.runs
        assert [step.text for step in run.instructions] == [
            step.text for step in predicted.instructions
        ]
        assert all(step.measured is not None and step.measured >= 0 for step in run.instructions)
        assert profile.total.measured == pytest.approx(run.total.measured)
        assert profile.total.measured > 0
        assert run.measured_memory == pytest.approx(run.memory, rel=0.05, abs=64 * pool.workers)
        after = x.explain()
        assert after.instructions == run.instructions
        assert "it was computed by" in after.heading
        assert "measured" in str(after).splitlines()[-1]
        assert str(profile).startswith("by operation")


def test_nothing_is_timed_outside_of_a_profile() -> None:
    with current("shared", 2):
        with mm.profile() as profile:
            mm.evaluate(mm.asarray([1.0, 2.0]) + 1)
        y = mm.asarray([1.0, 2.0]) + 1
        mm.evaluate(y)
        assert len(profile.runs) == 1
        assert y.node.value.origin.timings == {}
        assert y.explain().total.measured is None


def test_profiles_can_be_nested_and_end_with_an_error() -> None:
    with current("inline"):
        with mm.profile() as outer:
            with pytest.raises(ShapeError), mm.profile() as inner:
                mm.evaluate(mm.asarray([1.0]) + 1) or mm.ones(2) + mm.ones(3)
            mm.evaluate(mm.asarray([1.0]) + 1)
        assert (len(inner.runs), len(outer.runs)) == (1, 1)
        assert session.engine().profiler is None


def test_pools_that_start_in_the_block_are_profiled() -> None:
    with mm.profile() as profile:
        for _ in range(2):
            with mm.init(0, device="cpu"):
                mm.evaluate(mm.ones(3) + 1)
    assert len(profile.runs) == 2
    with mm.init(0, device="cpu"):
        assert session.engine().profiler is None


def test_loops_are_profiled_by_the_step() -> None:
    with current("shared", 2):
        x = mm.variable("x", [3.0, -2.0])
        optimizer = mm.optim.GradientDescent(0.1)
        with mm.profile() as profile:
            optimizer.minimize(mm.sum(x**2), [x], steps=20)
        np.testing.assert_allclose(np.asarray(x), np.array([3.0, -2.0]) * 0.8**20, rtol=1e-4)
        assert profile.runs[-1].total.measured is not None
        assert profile.runs[-1].total.measured > 0


def test_functions_are_explained_as_they_were_called_last() -> None:
    with current("shared", 2):
        double = mm.compile(lambda x: mm.exp(x) * 2)
        with pytest.raises(MagmathError, match="call the compiled function first"):
            mm.explain(double)
        double(mm.asarray([1.0]))
        double(mm.asarray(np.ones((4, 3), "float32")))
        assert "float32[4, 3]" in str(mm.explain(double))
        with pytest.raises(MagmathError, match="needs an array, a compiled function or a network"):
            mm.explain(3)


def test_an_explanation_of_stored_arrays_has_no_instructions() -> None:
    with current("inline"):
        explanation = mm.explain(mm.asarray([1.0]))
        assert explanation.instructions == ()
        assert "nothing to compute" in str(explanation)
        assert mm.variable("x", 1.0).explain().heading.startswith("variable of shape ()")


def test_notebooks_and_terminals_get_tables() -> None:
    with current("shared", 2):
        explanation = expression()[0].explain()
    html = explanation._repr_html_()
    assert html.count("<table>") == 2
    assert "&lt;-" in html
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(explanation)
    assert "by operation" in console.export_text()


def test_times_of_a_typical_server_are_marked() -> None:
    with current("planned", 1):
        cost = replace((mm.ones((400, 400)) + 1.0).explain(), heading="")
        assert cost.machine == session.engine().environment.machine.source
        remark = "for a typical server; `magmath calibrate`"
        assert remark in str(replace(cost, machine="default"))
        assert remark not in str(replace(cost, machine="AMD EPYC"))
