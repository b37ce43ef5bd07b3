"""Repeated programs become native without a change of any bit of their results."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import magmath as mm
from engines import current, start
from executors import Compiled, NativeWherePossible
from magmath.core.dtypes import DTYPES
from magmath.engine.engine import Engine
from magmath.executor import fused_loops, native_build, step_loop, tiers
from magmath.executor.native_segments import NativeSegments
from magmath.graph import Graph
from magmath.kernels import parallel_region
from magmath.kernels.parallel_region import run_on_threads
from magmath.layout import Mesh
from magmath.ops import OPERATIONS
from magmath.program.instructions import Call, Slot
from native_cases import OneShape, structured
from operation_bodies import applied
from operation_table import ROWS, Case

Numbers = NDArray[Any]
POOLS = [
    *[("planned", 1), ("shared", 2), ("shared", 4)],
    *[("messages", 2), ("overlapped", 2), ("exact", 2)],
]
POOL_NAMES = [f"{n}-{kind}" for kind, n in POOLS]


class Counted(Compiled):
    """Compiles at once, and counts; it is ready after `patience` requests."""

    sources: list[str] = []  # noqa: RUF012  shared by all
    patience = 0

    def __init__(self, source: str, arithmetic: str = "fast") -> None:
        self.sources.append(source)
        self._asked = 0
        super().__init__(source, arithmetic)

    def function(self) -> Callable[[int], int] | None:  # type: ignore[override]
        self._asked += 1
        return super().function() if self._asked > self.patience else None


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every program that is run again is compiled; the bindings that got segments."""
    monkeypatch.setattr(native_build, "NativeBuild", Counted)
    monkeypatch.setattr(tiers, "COMPILE_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr(tiers, "SHORT_SECONDS", 0.0)  # every run is timed
    result: list[Any] = []
    bind = NativeSegments.bind

    def noted(self: NativeSegments, tensors: Any) -> Any:
        result.append(tensors.program)
        return bind(self, tensors)

    monkeypatch.setattr(NativeSegments, "bind", noted)
    Counted.sources.clear()
    yield result
    Counted.sources.clear()


def equal_bits(x: Numbers, y: Numbers) -> bool:
    """True if two arrays have the same bits, where nan counts as one value."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    if x.dtype.kind == "f":
        x, y = (np.where(np.isnan(a), np.asarray(np.nan, a.dtype), a) for a in (x, y))
    return x.tobytes() == y.tobytes()


# operations -----------------------------------------------------------------------------------

SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5, -2.5, 3.5, 1e-40, 7e30]


def operands(dtype: str, size: int, count: int) -> list[Numbers]:
    """Numbers of a type, with the special ones among them where there are enough."""
    made = np.random.default_rng(size)
    if DTYPES[dtype].kind == "float":
        special = np.array(SPECIAL, dtype)
        drawn = [made.normal(0, 3, size).astype(dtype) for _ in range(count)]
        return [np.where(made.random(size) < 0.4, made.choice(special, size), x) for x in drawn]
    if dtype == "bool":
        return [made.random(size) < 0.5 for _ in range(count)]
    return [made.integers(0, 100, size).astype(dtype) for _ in range(count)]


def elementwise_cases(dtype: str, size: int) -> list[tuple[str, Case]]:
    """Element-wise operations whose native form has the kernel's bits, for one type."""
    import torch

    draws = OneShape(lambda _: None, DTYPES[dtype], np.random.default_rng(7))  # type: ignore[arg-type, return-value]
    cases = []
    for name, row in ROWS.items():
        operation = OPERATIONS[name]
        if not operation.is_elementwise or dtype not in row.dtypes or name == "astype":
            continue
        kinds = [DTYPES[str(x.dtype).removeprefix("torch.")] for x in row.draw(draws).operands]
        if not operation.has_same_bits(DTYPES[dtype], kinds):
            continue
        given = [torch.from_numpy(x) for x in operands(dtype, size, len(kinds))]
        if name == "where":
            given[0] = given[1] != given[2]
        if "shift" in name:
            given[1] = given[1] % 7
        cases.append((name, Case(tuple(given), {})))
    for target in ("bool", "int64", "float32", "float64"):
        if OPERATIONS["astype"].has_same_bits(DTYPES[target], [DTYPES[dtype]]):
            (x,) = operands(dtype, size, 1)
            cases.append(("astype", Case((torch.from_numpy(x),), {"dtype": DTYPES[target]})))
    return cases


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float32", "float64"])
@pytest.mark.timeout(300)
def test_native_forms_have_the_bits_of_kernels(dtype: str, bound: list[Any]) -> None:
    """For the operations with `has_same_bits`, on numbers for which rounding and signs could differ."""
    pool = start("inline", 1)
    engine = Engine(pool)
    try:
        for size in (1, 7, 33, 9000):
            cases = elementwise_cases(dtype, size)
            if size == 7:
                draws = OneShape(lambda _: None, DTYPES[dtype], np.random.default_rng(7))  # type: ignore[arg-type, return-value]
                cases += [
                    (name, case)
                    for name, case in structured(draws)
                    if dtype in ROWS[name].dtypes
                    and OPERATIONS[name].has_same_bits(DTYPES[dtype], [DTYPES[dtype]])
                ]
            graph = engine.pending_graph(
                Graph(tuple(applied(engine, name, case) for name, case in cases))
            )
            compiled = engine.compile(graph)
            before = len(bound)
            runs = []
            for _ in range(16):
                outputs, _ = engine.runs.run(compiled, graph.leaves)
                runs.append([engine.pool.get(data.array_id).numpy().copy() for data in outputs])
            assert len(bound) > before
            for results in runs[1:]:
                for (name, _), x, y in zip(cases, runs[0], results, strict=True):
                    assert equal_bits(x, y), (name, size, x, y)
    finally:
        pool.close()


# programs -------------------------------------------------------------------------------------


def _slice_pair(choice: random.Random, n: int) -> tuple[slice, slice]:
    """Two slices of one length of a dimension."""
    step = choice.choice([1, 1, 1, 2, 3])
    extent = choice.randint(1, max(1, n // step))
    span = (extent - 1) * step + 1
    first, second = (choice.randint(0, n - span) for _ in range(2))
    return slice(first, first + span, step), slice(second, second + span, step)


def _random_step(choice: random.Random, ndim: int, n: int) -> Callable[[Any, Any, Any], Any]:
    """A function of two arrays and a library, of slices, rolls, updates in place and arithmetic."""
    plan: list[tuple[Any, ...]] = []
    for _ in range(choice.randint(2, 6)):
        pairs = [_slice_pair(choice, n) for _ in range(ndim)]
        here, there = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
        kind = choice.choice(["update", "update", "add", "roll", "mix", "where", "turn"])
        plan.append((kind, here, there, choice.choice([0.25, -1.5, 3.0]), choice.randint(-2, 2)))

    def step(x: Any, y: Any, np_: Any) -> Any:
        out = np_.array(x) if np_ is np else mm.asarray(x, copy=True)
        for kind, here, there, factor, shift in plan:
            if kind == "update":
                out[here] = factor * (x[there] + y[here])
            elif kind == "add":
                out[here] += y[there] * factor
            elif kind == "roll":
                y = np_.roll(y, shift, axis=0) - out
            elif kind == "mix":
                y = (x - y) * factor + out
            elif kind == "where":
                out = np_.where(y > x, out, abs(x) * factor)
            else:
                y = y[::-1] + x
        return out, y

    return step


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pool", POOLS, ids=POOL_NAMES)
@pytest.mark.timeout(300)
def test_random_programs_agree_with_numpy_in_every_run(
    pool: tuple[str, int], seed: int, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(seed)
    monkeypatch.setattr(Counted, "patience", choice.choice([0, 3]))
    n, ndim = choice.choice([(3, 1), (17, 1), (6, 2), (40, 2), (400, 2)])
    values = np.random.default_rng(seed)
    with current(*pool):
        body = _random_step(choice, ndim, n)
        dtype = choice.choice(["float32", "float64"])
        x, y = (values.random((n,) * ndim).astype(dtype) for _ in range(2))
        expected = body(x, y, np)
        compiled = mm.compile(lambda x, y: body(x, y, mm))
        layout = mm.Layout.split(0) if pool[1] > 1 else None
        a, b = (mm.asarray(v, layout=layout) for v in (x, y))
        for _ in range(choice.choice([1, 12, 40])):
            for actual, known in zip(compiled(a, b), expected, strict=True):
                np.testing.assert_array_equal(actual.numpy(), known)


STENCIL = (slice(1, -1), slice(1, -1))


def _heat(u: Any) -> Any:
    v = u.copy() if isinstance(u, np.ndarray) else mm.asarray(u, copy=True)
    v[STENCIL] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return v


@pytest.mark.parametrize("pool", POOLS, ids=POOL_NAMES)
def test_a_loop_of_the_users_own_becomes_native_and_is_compiled_once(
    pool: tuple[str, int], bound: list[Any]
) -> None:
    start = np.random.default_rng(1).random((160, 110))
    with current(*pool):
        for step in (mm.compile(_heat), lambda u: mm.evaluate(_heat(u)) or None):
            u: Any = mm.asarray(start)
            known = start
            for _ in range(30):
                following = step(u)
                u = _heat(u) if following is None else following
                known = _heat(known)
                np.testing.assert_array_equal(u.numpy(), known)
        if bound:
            kinds = {x.operation for x in bound[0].instructions if isinstance(x, Call)}
            assert "set_slice" in kinds
            assert not {"slice", "dynamic_slice"} & kinds, "slices are views, or parts of loops"
    workers = 1 if pool[0] == "planned" else pool[1]
    if workers == 1:  # the copy shares a loop with the stencil that is written into it
        assert all(source.count("def part") == 1 for source in Counted.sources)
    assert bound or workers == 4, "four workers have too little between two meetings"
    # one form of each of the two programs on each worker
    assert len(Counted.sources) <= 2 * workers


@pytest.mark.parametrize("short", [0.0, float("inf")], ids=["long", "short"])
def test_programs_that_are_run_a_few_times_are_not_compiled(
    bound: list[Any], monkeypatch: pytest.MonkeyPatch, short: float
) -> None:
    """Of short runs only some are timed, and none is counted before it has happened."""
    monkeypatch.setattr(tiers, "SHORT_SECONDS", short)
    with current("planned", 1):
        step = mm.compile(_heat)
        u = mm.ones((50, 50))
        for _ in range(tiers.MIN_RUNS - 1):
            u = step(u)
        assert float(u[0, 0]) == 1
    assert not Counted.sources


def test_instructions_without_a_native_form_stay_calls_between_segments(
    bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, one such instruction kept the whole program from native code."""
    monkeypatch.setattr(step_loop, "ExecutorSelector", NativeWherePossible)
    NativeWherePossible.used.clear()

    def body(i: Any, x: Any) -> Any:
        y = (x * 2 - 1) * x + i
        z = mm.sort(y)
        return (z - y) * 0.5 + z

    x = np.random.default_rng(0).random(1000)
    known = x
    for i in range(5):
        y = (known * 2 - 1) * known + i
        z = np.sort(y)
        known = (z - y) * 0.5 + z
    with current("planned", 1):
        actual = mm.fori_loop(0, 5, body, mm.asarray(x))
        np.testing.assert_allclose(actual.numpy(), known, rtol=1e-12)
    assert NativeWherePossible.used == ["segments"]
    (source,) = Counted.sources
    assert "if group == 1:" in source


def test_bad_positions_in_a_segment_raise_what_the_call_raises(bound: list[Any]) -> None:
    with current("planned", 1):
        f = mm.compile(lambda x, i: (x + 1)[i] * 2 - x)  # the line
        x = mm.asarray(np.arange(5000.0))
        for i in range(20):
            assert float(f(x, mm.asarray(i))[0]) == 2 * (i + 1)
        assert bound
        for bad in (5000, -5001, -7000):
            with pytest.raises(IndexError, match=f"index {bad} is out of range"):
                f(x, mm.asarray(bad)).numpy()
            assert float(f(x, mm.asarray(3))[0]) == 8


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.timeout(300)
def test_threads_divide_loops_without_a_change_of_any_bit(
    threads: int, seed: int, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    def noted(function: int, record: int, count: int) -> None:
        used.append(count)
        run_on_threads(function, record, count)

    monkeypatch.setattr(parallel_region, "run_on_threads", noted)
    monkeypatch.setattr(fused_loops, "MIN_DIVIDED", 2)
    choice, values = random.Random(seed), np.random.default_rng(seed)
    n, ndim = choice.choice([(37, 1), (1000, 1), (40, 2), (7, 3)])
    body = _random_step(choice, ndim, n)
    x, y = (values.random((n,) * ndim) for _ in range(2))
    expected = body(x, y, np)
    before = torch.get_num_threads()
    with current("planned", 1):
        torch.set_num_threads(threads)
        try:
            compiled = mm.compile(lambda x, y: body(x, y, mm))
            a, b = map(mm.asarray, (x, y))
            for _ in range(12):
                for actual, known in zip(compiled(a, b), expected, strict=True):
                    np.testing.assert_array_equal(actual.numpy(), known)
        finally:
            torch.set_num_threads(before)
    assert bound
    assert set(used) == {threads}


def test_instructions_wait_in_groups_of_limited_size(
    bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates in place too, each of which is compared with all others of its group."""
    sizes = []
    next_loop = fused_loops.next_loop

    def noted(members: Any) -> Any:
        sizes.append(len(members))
        return next_loop(members)

    monkeypatch.setattr(fused_loops, "MAX_MEMBERS", 8)
    monkeypatch.setattr(fused_loops, "next_loop", noted)

    def body(x: Any) -> Any:
        y = x.copy() if isinstance(x, np.ndarray) else mm.asarray(x, copy=True)
        for i in range(1, 21):
            y[i:-i] = i
        return y

    x = np.random.default_rng(0).random((60, 5))
    with current("planned", 1):
        compiled = mm.compile(body)
        for _ in range(20):
            np.testing.assert_array_equal(compiled(mm.asarray(x)).numpy(), body(x))
    assert bound
    assert max(sizes) == 8


@pytest.mark.parametrize("limit", range(2, 9))
def test_an_update_is_right_wherever_its_group_ends(
    limit: int, bound: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the copy and the write too: then the values to be written are stored."""
    monkeypatch.setattr(fused_loops, "MAX_MEMBERS", limit)

    def body(x: Any) -> Any:
        z = abs(x)
        for _ in range(2):
            z = abs(z - x)
        y, u = +z, +z  # other values of z, so that both updates copy
        y[1:] = x[1:] * 3.0 + z[1:]
        u[:-1] = z[:-1] + 0.5
        return y, u, z

    x = np.random.default_rng(0).random(40_000)
    with current("shared", 2):
        compiled = mm.compile(body)
        for k in range(20):
            for actual, expected in zip(compiled(mm.asarray(x + k)), body(x + k), strict=True):
                np.testing.assert_array_equal(actual.numpy(), expected)
    assert bound


class _CountedSlots(list[Slot]):
    """Slots that count how often they are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 30)), min_size=1, max_size=30),
    st.randoms(use_true_random=False),
)
def test_memory_that_is_read_outside(
    kinds: list[tuple[bool, bool, int]], choice: random.Random
) -> None:
    """As found by following the aliases of each slot, but each slot is passed once."""
    layout = mm.Layout.replicated().bind((3,), Mesh.line(1))
    numbers = choice.sample(range(len(kinds)), len(kinds))  # an alias may precede or follow
    slots: list[Any] = [None] * len(kinds)
    for place, (is_array, is_read, before) in enumerate(kinds):
        kind: Any = "input" if is_array else "temporary"
        alias = numbers[before] if before < place else None
        slots[numbers[place]] = Slot((3,), DTYPES["float64"], layout, kind, alias, is_read)

    def is_read_outside(index: int | None) -> bool:
        if index is None:
            return False
        slot = slots[index]
        return slot.kind != "temporary" or slot.is_peer_readable or is_read_outside(slot.alias)

    counted = _CountedSlots(slots)
    assert fused_loops.read_outside(counted) == [is_read_outside(i) for i in range(len(slots))]
    assert counted.reads <= 2 * len(slots)


def test_small_loops_are_not_divided(bound: list[Any]) -> None:
    """The other threads would take longer to start."""
    with current("planned", 1):
        step = mm.compile(lambda x: (x * 2 + 1) * x)
        for n in (1000, fused_loops.MIN_DIVIDED):
            Counted.sources.clear()
            x = mm.asarray(np.arange(n, dtype=float))
            for _ in range(5):
                step(x).numpy()
            (source,) = Counted.sources
            assert ("fetch_add" in source) == (n > 1000)


# joined dimensions ------------------------------------------------------------------------------


def _operand(choice: random.Random, shape: tuple[int, ...], made: np.random.Generator) -> Numbers:
    """Numbers that broadcast to a shape, in any memory order, perhaps a part of a larger array."""
    own = [n if choice.random() < 0.75 else 1 for n in shape]
    order = list(range(len(own)))
    if choice.random() < 0.3:
        choice.shuffle(order)
    larger = [own[d] + (2 if choice.random() < 0.15 else 0) for d in order]
    whole = made.standard_normal(larger)
    part = whole[tuple([slice(0, own[d]) for d in order])]
    return part.transpose(np.argsort(order))


@pytest.mark.parametrize("seed", range(12))
def test_loops_over_joined_dimensions(seed: int, bound: list[Any]) -> None:
    """Loops over operands of several dimensions, of which some are contiguous together."""
    choice, made = random.Random(seed), np.random.default_rng(seed)
    with current("planned", 1):
        for _ in range(4):
            shape = tuple([choice.choice([1, 2, 3, 3, 7, 16]) for _ in range(choice.randint(2, 4))])
            arrays = [_operand(choice, shape, made) for _ in range(5)]
            arrays.append(made.standard_normal(shape))

            def body(m: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
                x = a * b + f
                y = c - d * x
                return x * 2.0, y / (e * e + 1.0), m.sqrt(f * f) + a

            given = [mm.asarray(x) for x in arrays]
            compiled = mm.compile(lambda *x: body(mm, *x))
            for _ in range(4):
                for actual, known in zip(compiled(*given), body(np, *arrays), strict=True):
                    np.testing.assert_array_equal(actual.numpy(), known)
    assert bound


@pytest.mark.parametrize(
    ("optimizer", "stores"), [(mm.optim.Momentum(0.1), 2), (mm.optim.Adam(0.1), 3)]
)
def test_an_update_is_one_loop_for_each_variable(
    optimizer: Any, stores: int, bound: list[Any]
) -> None:
    """Without inner loops over the filters, and without a loop over two variables."""
    with current("planned", 1):
        shapes = [(64, 32, 3, 3), (64, 32, 3, 3), (128, 16, 3, 3)]
        weights = [mm.variable(f"w{i}", mm.ones(shape)) for i, shape in enumerate(shapes)]
        images = mm.ones((1, 1, 1, 1))

        @mm.compile
        def step(x: mm.Array) -> mm.Array:
            slopes = {w: w * 0.5 + x for w in weights}
            optimizer.update(slopes)
            return mm.sum(x)

        for _ in range(6):
            mm.evaluate(step(images))
    source = max(Counted.sources, key=len)
    long = [text for text in source.split("\ndef ") if "18432" in text and "for " in text]
    updates = [text for text in long if text.count("] = v") >= 2 and not text.startswith("run")]
    assert len(updates) == 2  # two variables of one shape have the same code
    assert [text.count("for ") for text in updates] == [1, 1]
    assert [text.count("] = v") for text in updates] == [stores, stores]


# writes ---------------------------------------------------------------------------------------


def _copied(y: Any) -> Any:
    """What NumPy would read after it was written, if it were not a copy."""
    return y.copy() if isinstance(y, np.ndarray) else y


WRITES: dict[str, Callable[[Any, Any], None]] = {
    "reversed": lambda y, order: y.__setitem__(np.s_[::-1], _copied(y)),
    "reversed columns": lambda y, order: y.__setitem__(np.s_[:, ::-1], _copied(y)),
    "permuted": lambda y, order: y.__setitem__(order, _copied(y)),
    "permuted columns": lambda y, order: y.__setitem__((slice(None), order), _copied(y)),
    "moved up": lambda y, order: y.__setitem__(np.s_[1:], _copied(y[:-1])),
    "moved down": lambda y, order: y.__setitem__(np.s_[:-1], _copied(y[1:])),
    "moved and reversed": lambda y, order: y.__setitem__(np.s_[1:], _copied(y[:0:-1])),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize(("kind", "workers"), POOLS[:2], ids=POOL_NAMES[:2])
def test_arrays_that_are_written_into_themselves(
    kind: str, workers: int, name: str, bound: list[Any]
) -> None:
    """The result must not be computed in the memory of a temporary that the write reads again."""
    rng = np.random.default_rng(1)
    values, order, write = rng.random((500, 500)), rng.permutation(500), WRITES[name]
    expected = values * 2.0
    write(expected, order)

    @mm.compile
    def written(x: Any, order: Any) -> Any:
        y = x * 2.0
        write(y, order)
        return y + 1.0

    with current(kind, workers):
        x, positions = mm.asarray(values), mm.asarray(order)
        for _ in range(16):
            np.testing.assert_array_equal(written(x, positions).numpy(), expected + 1.0)
    assert bound or "permuted" in name  # which has no native form
