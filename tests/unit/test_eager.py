"""Small arrays are computed eagerly, without a program, with no other observable difference."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import magmath as mm
from engines import NOTHING_IS_SMALL, current
from magmath.engine import session
from magmath.engine.array_sizes import MAX_BYTES_INLINE
from magmath.engine.eager.eager_computation import MAX_READ
from magmath.engine.engine import Engine
from magmath.engine.lifetimes.expression_bounds import INTERPRETED_PENDING, MAX_PENDING
from magmath.errors import MagmathError, MemoryLimitError
from magmath.graph import Provenance
from magmath.graph.provenance import provenance, provenance_chains, repeated_calls
from magmath.runtime import Pool

LARGEST = MAX_BYTES_INLINE // 4


@pytest.fixture(autouse=True)
def pool() -> Iterator[Pool]:
    """A fresh engine on the worker of this process."""
    with current("inline") as pool:
        yield pool


@pytest.fixture(params=["at once", "planned"])
def engine(request: pytest.FixtureRequest, pool: Pool) -> Engine:
    """The engine, computing small arrays eagerly or by programs."""
    engine = session.engine()
    if request.param == "planned":
        engine.small_sizes = NOTHING_IS_SMALL
    return engine


def counter(pool: Pool, name: str) -> int:
    return int(pool.stats()[0][name])


def test_small_arrays_define_no_program(pool: Pool) -> None:
    known = counter(pool, "programs")
    for extent in range(1, 40):
        x = mm.arange(extent, dtype="float32")
        np.testing.assert_array_equal(
            (x * 2 + mm.reshape(x, (extent, 1))[0]).numpy(), 2.0 * np.arange(extent)
        )
    assert counter(pool, "programs") == known


@pytest.mark.parametrize(("extent", "programs"), [(LARGEST, 0), (LARGEST + 1, 1)])
def test_larger_arrays_are_planned(pool: Pool, extent: int, programs: int) -> None:
    x = mm.asarray(np.ones(extent, np.float32))
    known = counter(pool, "programs")
    mm.evaluate(x + 1)
    assert counter(pool, "programs") - known == programs
    mm.evaluate(mm.sum(x))
    assert counter(pool, "programs") - known == programs, "a small result of a larger operand"
    mm.evaluate(mm.sum(mm.asarray(np.ones(MAX_READ // 4 + programs, np.float32))))
    assert counter(pool, "programs") - known == 2 * programs, "the operand counts too"


def test_results_lie_whole(engine: Engine) -> None:
    x = mm.asarray(np.ones((4, 6), np.float32))
    for y in (
        x + 1,
        mm.sum(x, axis=0),
        x @ x.T,
        x[1],
        mm.concat([x, x]),
        mm.random.normal(shape=3),
    ):
        assert y.layout == engine.environment.replicated(y.shape)


def test_memory_comes_from_the_heap_and_returns_to_it(pool: Pool) -> None:
    v = mm.variable("v", np.ones(LARGEST, np.float32))  # expressions of variables are pending
    mm.evaluate(v + 1)
    gc.collect()
    held, allocated = counter(pool, "in_use"), counter(pool, "allocations")
    y = mm.tanh(v + 1) * 2
    mm.evaluate(y)
    assert counter(pool, "in_use") - held >= MAX_BYTES_INLINE
    assert counter(pool, "allocations") > allocated
    del y
    assert counter(pool, "in_use") == held


def test_chains_need_little_memory() -> None:
    with mm.init() as pool:  # of its own: the peak of another is that of all tests before
        x = mm.asarray(np.ones(LARGEST, np.float32))
        before = counter(pool, "in_use")
        y = x
        for _ in range(300):
            y = mm.tanh(y)
        mm.evaluate(y)
        assert counter(pool, "peak") - before < 100 * MAX_BYTES_INLINE


def test_limit_names_the_holders_and_leaves_nothing_behind() -> None:
    with mm.init(memory_limit=4 * MAX_BYTES_INLINE) as pool:
        x = mm.asarray(np.ones(LARGEST, np.float32))
        held = counter(pool, "in_use")
        y = mm.asarray(np.ones(LARGEST, np.float32))
        parts = [x + i for i in range(4)]
        with pytest.raises(MemoryLimitError, match="largest holders.*float32 array"):
            mm.evaluate(*parts)
        del y, parts
        gc.collect()
        assert counter(pool, "in_use") == held
        np.testing.assert_array_equal((x + 1).numpy(), np.full(LARGEST, 2, np.float32))


def test_errors_name_the_users_line(engine: Engine) -> None:
    singular = mm.asarray(np.zeros((2, 2), np.float32))
    with pytest.raises(np.linalg.LinAlgError) as caught:
        mm.evaluate(mm.linalg.inv(singular) + 1)  # this line
    note = "".join(traceback.format_exception_only(caught.value))
    lines = Path(__file__).read_text().splitlines()
    number = next(i for i, text in enumerate(lines, 1) if text.endswith("# this line"))
    assert f"in the operation built at {__file__}:{number}" in note


def test_gradients_are_the_same(engine: Engine) -> None:
    x = mm.asarray(np.linspace(-1, 1, 12).reshape(3, 4))
    hidden = mm.tanh(x @ x.T)
    mm.evaluate(hidden * 1.0)  # intermediate values are still part of the expression
    slope = mm.grad(mm.sum(hidden * hidden), x)
    h = np.tanh(np.asarray(x) @ np.asarray(x).T)
    inner = 2 * h * (1 - h * h)
    np.testing.assert_allclose(slope.numpy(), (inner + inner.T) @ np.asarray(x))


def test_endless_loops_take_no_more_memory(pool: Pool) -> None:
    x, y = mm.zeros(4), mm.ones(4)
    for _ in range(MAX_PENDING + 10):
        x += 2 * y
    assert x.node.depth <= INTERPRETED_PENDING
    z = mm.sum(x)
    assert mm.grad(z, y).tolist() == [2.0 * (MAX_PENDING + 10)] * 4
    assert float(z) == 8.0 * (MAX_PENDING + 10)


def test_loops_remember_a_bounded_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is computed from a former one, which is gone, and from an array that stays. Of the
    last operations gradients are known, of others it is known that there are some."""
    for module in (provenance_chains, provenance, repeated_calls):
        monkeypatch.setattr(module, "MAX_LENGTH", 200)
    x, y = mm.zeros(4), mm.asarray(np.ones(4, np.float32))
    step = mm.compile(lambda x, y: x + y)
    kept = []
    for i in range(1500):
        x = step(x, y) if i % 3 == 0 else x + y
        mm.evaluate(x)
        kept.append(x) if i % 100 == 0 else None
    gc.collect()
    assert sum(type(result) is Provenance for result in gc.get_objects()) < 1000
    for source in (y, *kept[:8]):
        with pytest.raises(MagmathError, match=r"grad: .*more than 200 operations"):
            mm.grad(mm.sum(x), source)
    assert mm.grad(mm.sum(x), kept[-1]).tolist() == [1.0] * 4


def test_long_expressions_of_variables_are_kept() -> None:
    v = mm.variable("v", 1.0)
    x = v * 1.0
    for _ in range(MAX_PENDING + 10):
        x = x + v
    assert float(mm.grad(x, v)) == MAX_PENDING + 11


def test_long_expressions_of_arguments_are_kept() -> None:
    @mm.compile
    def many(x: mm.Array) -> mm.Array:
        y = x
        for _ in range(MAX_PENDING + 10):
            y = y + x
        return y

    assert float(many(mm.asarray(1.0))) == MAX_PENDING + 11
    assert float(many(mm.asarray(2.0))) == 2 * (MAX_PENDING + 11)


def test_number_types_and_signed_zeros_are_kept(engine: Engine) -> None:
    x = mm.asarray(np.ones(3))
    for zero in (0.0, -0.0, 0.0):
        np.testing.assert_array_equal(np.signbit((x * zero).numpy()), np.signbit(np.ones(3) * zero))
    for number in (True, 1, 1.0):
        assert (mm.asarray([1.5, 2.0]) * mm.full((), number, dtype="float32")).tolist() == [1.5, 2]
