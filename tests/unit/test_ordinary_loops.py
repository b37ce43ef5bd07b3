"""What ordinary loops compute, and how often: nothing twice, and no more memory than they need."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm
from arrays import programs
from engines import current
from magmath.bench.numpy_programs import conjugate_gradients
from magmath.engine.evaluation.evaluator import Evaluator
from magmath.engine.lifetimes.live_references import has_array
from magmath.errors import LinAlgError
from magmath.runtime import Pool

KINDS = [("planned", 1), ("shared", 2)]
EXTENT = 132
"""Arrays of this extent squared are planned, and evaluated with what else reads their operands."""


@pytest.fixture(autouse=True, params=KINDS, ids=lambda kind: str(kind[0]))
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    mm.set_default_dtype("float64")
    with current(*request.param) as pool:
        yield pool
    mm.set_default_dtype("float32")


def _operations(profile: Any) -> Counter[str]:
    return Counter(step.operation for run in profile.runs for step in run.instructions)


def test_an_update_is_computed_with_the_values_that_it_reads() -> None:
    """Otherwise the solution of a Krylov solver is computed after the loop, from every direction."""
    (b,) = conjugate_gradients.data(EXTENT)
    for steps in (3, 12):
        expected, _ = _solve(np, b, steps)
        with mm.profile() as profile:
            x, _ = _solve(mm, mm.asarray(b), steps)
            assert isinstance(x, mm.Array)
            runs, written = len(profile.runs), _operations(profile)["set_slice"]
            np.testing.assert_allclose(x.numpy(), expected, atol=1e-12)
        assert runs == steps, "one program for each step"
        assert len(profile.runs) <= steps + 1, "reading the solution computes at most the last step"
        assert written == 4 * steps, "no direction is computed again"
        assert _operations(profile)["set_slice"] == written


def test_a_long_loop_of_small_arrays_plans_few_programs(pool: Pool) -> None:
    """A pending expression of a thousand operations is computed with the arrays that it contains
    and that the next lines read; otherwise each further line computes the whole expression."""

    def slope(lib: Any, y: Any) -> Any:
        return lib.stack(
            [10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]]
        )

    def integrated(lib: Any) -> Any:
        y, h = lib.ones(3), 0.01
        for _ in range(80):
            k1 = slope(lib, y)
            k2 = slope(lib, y + h / 2 * k1)
            k3 = slope(lib, y + h / 2 * k2)
            k4 = slope(lib, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y

    before = programs(pool)
    with mm.profile() as profile:
        result = integrated(mm).numpy()
    np.testing.assert_allclose(result, integrated(np), rtol=1e-10)
    assert len(profile.runs) <= 80, "at most one part for each step"
    assert programs(pool) - before <= 20


def _solve(lib: Any, b: Any, steps: int) -> tuple[Any, Any]:
    """Some steps of conjugate gradients, each of which reads the norm of the residual."""
    x, r = lib.zeros_like(b), b.copy()
    p = r.copy()
    rs = (r * r).sum()
    for _ in range(steps):
        q = conjugate_gradients.laplacian(lib, p)
        alpha = rs / (p * q).sum()
        x += alpha * p
        r -= alpha * q
        new = (r * r).sum()
        if float(new) < 1e-30:
            break
        p = r + (new / rs) * p
        rs = new
    return x, rs


def test_values_that_a_loop_replaces_are_released(pool: Pool) -> None:
    start = mm.asarray(np.ones((EXTENT, EXTENT)))
    mm.evaluate(start, wait=True)
    before = int(pool.stats()[0]["in_use"])
    x = start
    most = 0
    for _ in range(30):
        x = x * 0.5 + 1
        assert float(x.sum()) > 0
        most = max(most, int(pool.stats()[0]["in_use"]) - before)
    assert most <= 4 * start.size * 8


def test_an_update_that_needs_more_than_element_wise_operations_waits() -> None:
    a = np.random.default_rng(0).random((EXTENT, EXTENT))
    x, total = mm.asarray(a), mm.asarray(np.zeros((EXTENT, EXTENT)))
    y = x * 2
    total += y @ y
    assert float(y.sum()) == pytest.approx(2 * a.sum())
    assert not total.is_computed
    np.testing.assert_allclose(total.numpy(), 4 * a @ a)


def test_arrays_that_are_computed_with_others_have_gradients() -> None:
    a = mm.asarray(np.random.default_rng(0).random((EXTENT, EXTENT)))
    y = a * a
    z = mm.sum(y)
    assert float(z) > 0
    assert y.is_computed, "it was computed for its sum"
    np.testing.assert_allclose(mm.grad(mm.sum(y * 3), a).numpy(), 6 * a.numpy())
    np.testing.assert_allclose(mm.grad(z, a).numpy(), 2 * a.numpy())


def test_a_table_of_solutions_is_computed_once() -> None:
    """Operations that are expanded, such as `solve`, keep the values that the user refers to."""
    random = np.random.default_rng(0)
    a, b = random.random((30, 30)) + 30 * np.eye(30), random.random(30)
    table = mm.zeros((3, 30))
    with mm.profile() as profile:
        for i in range(3):
            table[i] = mm.linalg.solve(mm.asarray(a) * (i + 1), mm.asarray(b))
        best = int(table[:, 0].argmin())
        result = table.numpy()
    np.testing.assert_allclose(result, [np.linalg.solve(a * (i + 1), b) for i in range(3)])
    assert best == result[:, 0].argmin()
    assert _operations(profile)["lu_solve"] == 3


def test_a_median_needs_no_sort(pool: Pool) -> None:
    x = np.random.default_rng(0).random((40, 1001))
    with mm.profile() as profile:
        result = mm.median(mm.asarray(x, layout=mm.Layout.split(0)), axis=1).numpy()
    np.testing.assert_array_equal(result, np.median(x, axis=1))
    assert _operations(profile)["order_statistics"] == 1
    assert _operations(profile)["sort"] == 0


def test_a_process_computes_with_no_more_threads_than_it_was_given() -> None:
    """Neither BLAS nor torch has threads of its own that compute, or wait actively."""
    code = """
import os, threading, numpy as np, magmath as mm
mm.init(threads=1)
from magmath.bench.numpy_programs import conjugate_gradients, logistic_regression
def ticks():
    found = {}
    for task in os.listdir("/proc/self/task"):
        fields = open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()
        found[int(task)] = int(fields[11]) + int(fields[12])
    return found
before = ticks()
for program in (conjugate_gradients, logistic_regression):
    mm.evaluate(program.main(mm, *map(mm.asarray, program.data(400)))[0], wait=True)
a = mm.asarray(np.ones((700, 700)))
for _ in range(10):
    np.asarray(a @ a)
taken = {task: n - before.get(task, 0) for task, n in ticks().items()}
own = taken.pop(threading.get_native_id())
print(own, sum(taken.values()))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own, others = map(int, found.stdout.split())
    assert own > 10, "hundredths of a second"
    assert others <= own // 5


def test_an_update_survives_the_failure_of_a_run_that_reads_the_same_values(pool: Pool) -> None:
    random = np.random.default_rng(0).random((EXTENT, EXTENT))
    x, v = mm.asarray(np.ones((EXTENT, EXTENT))), mm.asarray(random)
    for step in range(1, 4):
        p = mm.exp(v)
        x += 0.5 * p
        with pytest.raises(LinAlgError):
            mm.linalg.cholesky(-(p @ p.T)).numpy()
        np.testing.assert_allclose(x.numpy(), 1 + 0.5 * step * np.exp(random))


def test_the_gradient_of_a_logistic_loss_computes_no_logarithm() -> None:
    random = np.random.default_rng(0)
    x, w = random.standard_normal((EXTENT * EXTENT, 3)), mm.asarray(random.standard_normal(3))

    def loss(w: mm.Array) -> mm.Array:
        return mm.mean(mm.logaddexp(0.0, mm.asarray(x) @ w))

    with mm.profile() as profile:
        slope = mm.grad(loss)(w).numpy()
    known = x.T @ (1 / (1 + np.exp(-(x @ w.numpy())))) / len(x)
    np.testing.assert_allclose(slope, known, rtol=1e-12)
    assert _operations(profile)["logaddexp"] == 0
    assert _operations(profile)["exp"] == 1


def test_gradients_of_recursions_that_start_from_the_logarithm_of_0() -> None:
    """The probabilities of a chain: the cells that are not reached yet have no nan."""
    start = mm.asarray([0.0, -np.inf, -np.inf, -np.inf])

    def after(t: mm.Array, steps: int) -> mm.Array:
        a = start
        for _ in range(steps):
            a = mm.logaddexp(a, mm.concat([start[-1:], a[:-1]]) + t)
        return mm.exp(a)

    for steps in (1, 2, 3):
        slopes = mm.jacobian(lambda t, n=steps: after(t, n))(0.5)
        known = [math.comb(steps, k) * k * math.exp(0.5 * k) for k in range(4)]
        np.testing.assert_allclose(slopes.numpy(), known, rtol=1e-5, atol=1e-12)
    infinite = mm.asarray([np.inf, -np.inf])
    slopes = mm.grad(lambda x, y: mm.sum(mm.logaddexp(x, y)), argnums=(0, 1))(infinite, infinite)
    assert [x.tolist() for x in slopes] == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_gradients_of_logaddexp_are_finite_where_one_operand_outweighs(dtype: str) -> None:
    apart = np.array([-np.inf, -2000.0, -50.0, 0.0, 3.0, 50.0, 2000.0, np.inf])
    z = mm.asarray(apart, dtype=dtype)

    def first(z: mm.Array) -> mm.Array:
        return mm.grad(lambda z: mm.sum(mm.logaddexp(z, mm.zeros_like(z))))(z)

    known = 1 / (1 + np.exp(-np.clip(apart, -600, 600)))
    tolerance = 2e-3 if dtype == "float16" else 1e-6
    np.testing.assert_allclose(np.asarray(first(z), float), known, atol=tolerance)
    second = mm.grad(lambda z: mm.sum(first(z)))(z)
    np.testing.assert_allclose(np.asarray(second, float), known * (1 - known), atol=tolerance)


@pytest.mark.parametrize("reads_former", [False, True])
def test_assignments_store_no_intermediate_results(
    monkeypatch: pytest.MonkeyPatch, reads_former: bool
) -> None:
    """Only what user code refers to: an activation of each layer would be stored otherwise."""
    stored: list[str] = []
    original = Evaluator._set_intermediates

    def noted(self: Any, nodes: Any, *args: Any) -> None:
        stored.extend(node.name for node in nodes if not has_array(node))
        original(self, nodes, *args)

    monkeypatch.setattr(Evaluator, "_set_intermediates", noted)
    w = mm.variable("w", np.full((EXTENT, EXTENT), 0.01))
    x = mm.asarray(np.ones((EXTENT, EXTENT)))
    former = w * 2.0 if reads_former else None
    for _ in range(3):
        loss = mm.mean(mm.tanh(mm.exp(x @ w) @ w) ** 2)
        gradient = mm.grad(loss, w)
        w.assign(w - 0.1 * gradient)
        former = mm.sin(w * 2.0) + 1.0 if reads_former else None
    w.numpy()
    assert former is None or former.shape == w.shape
    assert set(stored) <= {"subtract"}, "but the assigned value before its redistribution"
