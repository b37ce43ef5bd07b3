"""`vmap` equals the stack of the function's results for each example: for every operation of the
table, and in the combinations that users write, compared with torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import magmath as mm
from arrays import check
from engines import current
from magmath.batching.rules import RULES
from magmath.errors import MagmathError, ShapeError, TracingError
from magmath.graph import apply
from magmath.ops import OPERATIONS
from operation_bodies import check_close
from operation_table import ROWS, Case, cases

FACTORS = (1.0, 0.5, 0.75, 0.25)
FIXED = {"compress": (1,), "expand": (1,), "segment_counts": (0,), "segment_elements": (1,)}
"""Operands whose values go with the attributes: the same in every example."""


def varied(name: str, case: Case, position: int, size: int) -> torch.Tensor:
    """Other operands than one of a case for which the operation is defined too, stacked."""
    x = case.operands[position]
    if position in FIXED.get(name, ()):
        return torch.stack([x] * size) if size else x.new_empty((0, *x.shape))
    result = []
    for i in range(size):
        if x.is_floating_point() or x.is_complex():
            result.append(x * FACTORS[i] if name not in ("parity", "lu_solve") else x)
        else:
            result.append(torch.from_numpy(np.roll(x.numpy(), i, -1)) if x.ndim else x)
    return torch.stack(result) if result else x.new_empty((0, *x.shape))


@pytest.mark.parametrize("name", sorted(name for name in ROWS if name != "iota"))
def test_every_operation_of_a_batch_is_the_stack_of_its_examples(name: str) -> None:
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        case = data.draw(cases(ROWS[name]))
        if name == "correlation":  # passes fold epilogues into it, after batches are expanded
            assume("bias" not in case.attributes)
        size = data.draw(st.sampled_from([1, 2, 3, 3, 4]))
        count = len(case.operands)
        chosen = data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count))
        axes: list[int | None] = [None] * count
        given_, examples = list(case.operands), [list(case.operands) for _ in range(size)]
        for i in chosen:
            batch = varied(name, case, i, size)
            axes[i] = axis = data.draw(st.integers(-batch.ndim, batch.ndim - 1))
            given_[i] = torch.movedim(batch, 0, axis)
            for example, part in zip(examples, batch, strict=True):
                example[i] = part
        out_axis = data.draw(st.integers(0, 1))

        def one(*operands: mm.Array) -> mm.Array:
            nodes = [x.node for x in operands]
            return mm.Array(apply(OPERATIONS[name], *nodes, **case.attributes))

        expected = [one(*[mm.asarray(x) for x in example]) for example in examples]
        out_axis = min(out_axis, expected[0].ndim)
        actual = mm.vmap(one, tuple(axes), out_axis)(*[mm.asarray(x) for x in given_])
        stacked = mm.stack(expected, axis=out_axis)
        assert actual.dtype == stacked.dtype
        check_close(actual.fetch(), stacked.fetch(), (name, case, axes))

    holds()


def test_rules_are_for_operations_that_there_are() -> None:
    assert set(RULES) <= set(OPERATIONS)
    made_by_passes = {"gemm", "reduce_blocks", "insert_column", "sum_and_squares", "sum_and_dot"}
    leaves = {"input", "variable", "version", "scalar", "constant", "iota"}
    leaves |= {"branch", "branch_result", "custom_call"}  # not nodes of their own in a batch
    drawn = {name for name in OPERATIONS if name.startswith("random_")}
    one_by_one = {"segment_counts", "true_positions", "shift_left", "shift_right"}
    one_by_one |= {"summands", "sum_parts", "sum_signs"}
    elementwise = {name for name, operation in OPERATIONS.items() if operation.is_elementwise}
    assert set(OPERATIONS) == {
        *RULES, *made_by_passes, *leaves, *drawn, *one_by_one, *elementwise
    }  # fmt: skip


RANDOM = np.random.default_rng(0)
XS = RANDOM.normal(size=(5, 3))
WEIGHTS = RANDOM.normal(size=(3, 4))


def both(
    ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, limit: float = 1e-10
) -> None:
    """Assert that two functions of NumPy arrays agree."""
    actual = ours(*[mm.asarray(x) for x in args])
    expected = theirs(*[torch.from_numpy(np.asarray(x)) for x in args])
    check(actual, expected.numpy(), limit)


def test_gradients_of_each_example(every_pool: object) -> None:
    def ours(w: mm.Array, x: mm.Array) -> mm.Array:
        return mm.sum(mm.tanh(x @ w) ** 2)

    def theirs(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ w) ** 2).sum()

    both(
        mm.vmap(mm.grad(ours), in_axes=(None, 0)),
        torch.func.vmap(torch.func.grad(theirs), in_dims=(None, 0)),
        WEIGHTS,
        XS,
    )
    both(
        mm.grad(lambda w, x: mm.sum(mm.vmap(ours, (None, 0))(w, x) ** 2)),
        torch.func.grad(lambda w, x: (torch.func.vmap(theirs, (None, 0))(w, x) ** 2).sum()),
        WEIGHTS,
        XS,
    )


def test_jacobian_and_hessian_by_nesting(every_pool: object) -> None:
    weights = mm.asarray(WEIGHTS)

    def jacobian(x: mm.Array) -> mm.Array:
        def along(v: mm.Array) -> mm.Array:
            return mm.grad(lambda x: mm.sum(v * mm.tanh(x @ weights)))(x)

        return mm.vmap(along)(mm.eye(4, dtype=mm.float64))

    def hessian(x: mm.Array) -> mm.Array:
        slope = mm.grad(lambda x: mm.sum(mm.tanh(x @ weights) ** 3))
        return mm.vmap(lambda v: mm.grad(lambda x: mm.sum(slope(x) * v))(x))(
            mm.eye(3, dtype=mm.float64)
        )

    held = torch.from_numpy(WEIGHTS)
    both(jacobian, torch.func.jacrev(lambda x: torch.tanh(x @ held)), XS[0])
    slope = torch.func.jacrev(lambda x: (torch.tanh(x @ held) ** 3).sum())
    both(mm.compile(hessian), torch.func.jacrev(slope), XS[0])
    both(mm.vmap(jacobian), torch.func.vmap(torch.func.jacrev(lambda x: torch.tanh(x @ held))), XS)


def test_trees_axes_and_keywords() -> None:
    def f(pair: Any, scale: mm.Array, *, shift: mm.Array) -> Any:
        a, b = pair["a"], pair["b"][0]
        return {"sum": a + b, "rest": [scale * a, scale]}, shift

    a, b = RANDOM.normal(size=(2, 3)), RANDOM.normal(size=(3, 2))
    result, shift = mm.vmap(
        f,
        in_axes=({"a": 1, "b": [0]}, None),
        out_axes=({"sum": 1, "rest": [0, None]}, -1),
    )({"a": mm.asarray(a), "b": [mm.asarray(b)]}, mm.asarray(2.0), shift=mm.ones((3, 2)))
    check(result["sum"], a + b.T)
    check(result["rest"][0], (2 * a).T)
    assert result["rest"][1].shape == ()
    assert shift.shape == (2, 3)


def test_nested_and_shared_arguments() -> None:
    table = mm.vmap(mm.vmap(lambda x, y: x * y, (None, 0)), (0, None))
    check(table(mm.arange(3), mm.arange(4)), np.outer(np.arange(3), np.arange(4)))


@pytest.mark.parametrize("kind", ["inline", "shared", "messages"])
def test_programs_of_users_with_indexing_and_updates(kind: str) -> None:
    with current(kind, 1 if kind == "inline" else 4):
        xs = RANDOM.normal(size=(4, 6))
        places = np.array([0, 2, -1, 1])

        def f(x: mm.Array, i: mm.Array) -> Any:
            y = 2 * x
            y[1:3] = 0.0
            y[i] = x[5]
            window = x[mm.arange(2) + mm.maximum(i, 0)]
            return y, window, mm.sort(x)[::-1], x[i]

        y, window, ordered, picked = mm.vmap(f)(mm.asarray(xs), mm.asarray(places))
        expected = 2 * xs
        expected[:, 1:3] = 0
        expected[np.arange(4), places] = xs[:, 5]
        check(y, expected)
        check(window, np.stack([x[max(i, 0) :][:2] for x, i in zip(xs, places, strict=True)]))
        check(ordered, np.sort(xs, 1)[:, ::-1])
        check(picked, xs[np.arange(4), places])


def test_windows_at_positions_that_differ() -> None:
    x = RANDOM.normal(size=(3, 5, 4))
    starts = np.array([0, 2, 1])
    attributes: dict[str, Any] = {"axes": (0, 1), "extents": (2, None), "steps": (1, 1)}

    def read(x: mm.Array, i: mm.Array, j: mm.Array) -> mm.Array:
        return mm.Array(apply(OPERATIONS["dynamic_slice"], x.node, i.node, j.node, **attributes))

    def written(x: mm.Array, v: mm.Array, i: mm.Array, j: mm.Array) -> mm.Array:
        nodes = (x.node, v.node, i.node, j.node)
        return mm.Array(apply(OPERATIONS["dynamic_update_slice"], *nodes, **attributes))

    first, second = mm.asarray(starts), mm.asarray(starts[::-1].copy())
    expected = np.stack([a[i : i + 2, j] for a, i, j in zip(x, starts, starts[::-1], strict=True)])
    check(mm.vmap(read)(mm.asarray(x), first, second), expected)
    shared = np.stack([x[0][i : i + 2, j] for i, j in zip(starts, starts[::-1], strict=True)])
    check(mm.vmap(read, (None, 0, 0))(mm.asarray(x[0]), first, second), shared)
    values = RANDOM.normal(size=(3, 2))
    for a, v, i, j in zip(x, values, starts, starts[::-1], strict=True):
        a[i : i + 2, j] = v
    start = mm.asarray(np.where(np.ones_like(x), x, 0))
    check(mm.vmap(written)(start, mm.asarray(values), first, second), x)
    with pytest.raises(IndexError):
        mm.vmap(read)(mm.asarray(x), mm.asarray([-1, 0, 0]), second).numpy()


def test_random_numbers_are_drawn_for_each_example() -> None:
    def noisy(x: mm.Array) -> mm.Array:
        return x + mm.random.normal(shape=(50,)) + mm.random.uniform()

    xs = mm.zeros((4, 50), dtype=mm.float64)
    eager, compiled = mm.vmap(noisy), mm.compile(mm.vmap(noisy))
    mm.random.seed(3)
    drawn = [eager(xs).numpy(), eager(xs).numpy()]
    assert len(np.unique(np.concatenate(drawn))) == 400
    mm.random.seed(3)
    np.testing.assert_array_equal(np.stack([compiled(xs).numpy(), compiled(xs).numpy()]), drawn)
    nested = mm.vmap(mm.vmap(lambda x: x + mm.random.normal()))(mm.zeros((3, 2))).numpy()
    assert len(np.unique(nested)) == 6
    orders = mm.vmap(lambda x: x + mm.random.permutation(40))(mm.zeros(3, dtype=mm.int64)).numpy()
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    noise = mm.random.normal(shape=(3,))  # from outside: the same for all
    check(mm.vmap(lambda x: x + noise)(mm.zeros(2)), np.stack([noise.numpy()] * 2))


DRAWS: dict[str, Callable[[], mm.Array]] = {
    "random_uniform": lambda: mm.random.uniform(shape=(30,)),
    "random_normal": lambda: mm.random.normal(shape=(30,)),
    "random_exponential": lambda: mm.random.exponential(size=30),
    "random_bits": lambda: mm.random.integers(0, 1000, size=30),
    "random_permutation": lambda: mm.random.permutation(30),
    "random_gamma": lambda: mm.random.gamma(0.7, size=30),
    "random_log_gamma": lambda: mm.random.beta(0.7, 2.0, size=30),
    "random_poisson": lambda: mm.random.poisson(20.0, size=30),
    "random_binomial": lambda: mm.random.binomial(50, 0.4, size=30),
    "random_hypergeometric": lambda: mm.random.hypergeometric(50, 50, 40, size=30),
    "random_zipf": lambda: mm.random.zipf(1.5, size=30),
    "random_vonmises_cosine": lambda: mm.cos(mm.random.vonmises(0.0, 1.0, size=30)),
}
"""For each operation that draws numbers a function that shows what it has drawn."""


def test_every_operation_that_draws_has_a_case() -> None:
    assert set(DRAWS) == {name for name, record in OPERATIONS.items() if record.is_random}


@pytest.mark.parametrize("name", DRAWS)
def test_every_operation_draws_for_each_example(name: str) -> None:
    """Also with parameters that differ between examples, and in compiled functions."""
    batch = mm.vmap(lambda x: x + DRAWS[name]())
    for function in (batch, mm.compile(batch)):
        rows = function(mm.zeros(4)).numpy()
        assert len(np.unique(rows, axis=0)) == 4


def test_numbers_of_parameters_that_differ_are_drawn_for_each_example() -> None:
    n = mm.asarray([40, 40, 40])
    rows = mm.vmap(lambda n: mm.random.hypergeometric(50, 50, n, size=30))(n).numpy()
    assert len(np.unique(rows, axis=0)) == 3
    angles = mm.vmap(lambda k: mm.random.vonmises(0.0, k, size=30))(mm.ones(3)).numpy()
    assert len(np.unique(np.cos(angles).round(5), axis=0)) == 3


PARTS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "call": lambda draw: draw,
    "calls": lambda draw: lambda x: draw(draw(x)),
    "vmap": lambda draw: lambda x: mm.vmap(lambda y: draw(mm.reshape(y, (1,))))(x),
    "remat": lambda draw: mm.remat(lambda x: draw(draw(x))),
    "gradient": lambda draw: mm.grad(mm.remat(lambda x: mm.sum(mm.square(draw(x))))),
    "branch": lambda draw: lambda x: mm.cond(mm.sum(mm.ones(2)) > 0, draw, mm.negative, x),
    "short loop": lambda draw: lambda x: mm.fori_loop(0, 3, lambda i, y: draw(y), x),
    "long loop": lambda draw: lambda x: mm.fori_loop(0, 40, lambda i, y: draw(y), x),
    "scan": lambda draw: lambda x: mm.scan(lambda y, _: (y, draw(y)), x, mm.ones(40))[1],
}
"""Functions of an example that draw in a part of them."""


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["pool", "generator", "state"])
def test_every_generator_draws_for_each_example(kind: str, part: str) -> None:
    """That of the pool, one of the user, and the state of a module, which is a variable."""
    generators: dict[str, Callable[[], Any]] = {
        "pool": lambda: mm.random,
        "generator": lambda: mm.random.Generator(5),
        "state": lambda: mm.nn.RngState(5),
    }
    generator = generators[kind]()
    f = mm.compile(mm.vmap(PARTS[part](lambda x: x + generator.uniform(size=x.shape))))
    xs = mm.ones((4, 6))
    rows = np.concatenate([f(xs).numpy(), f(xs).numpy()])
    assert len(np.unique(rows)) == rows.size


def test_stopped_gradients_and_constants() -> None:
    f = mm.vmap(mm.grad(lambda x: mm.sum(x * mm.stop_gradient(x))))
    check(f(mm.asarray(XS)), XS)


def test_variables_are_read_and_assigned_what_all_examples_share() -> None:
    w, count = mm.variable("w", WEIGHTS), mm.variable("count", 0)

    def f(x: mm.Array) -> mm.Array:
        count.assign(count + 1)
        return x @ w

    check(mm.vmap(f)(mm.asarray(XS)), XS @ WEIGHTS)
    check(mm.compile(mm.vmap(f))(mm.asarray(XS)), XS @ WEIGHTS)
    assert int(count) == 2

    def wrong(x: mm.Array) -> mm.Array:
        count.assign(mm.astype(x[0], mm.int64))
        return x

    with pytest.raises(MagmathError, match=r"vmap: .*variable count .*differs between examples"):
        mm.vmap(wrong)(mm.asarray(XS))
    assert int(count) == 2


def test_gradients_by_variables_of_a_batched_loss() -> None:
    w = mm.variable("w", WEIGHTS)
    loss = mm.vmap(lambda x: mm.sum(mm.tanh(x @ w)))
    _, slopes = mm.value_and_grad(lambda: mm.mean(loss(mm.asarray(XS))), [w])
    held = torch.tensor(WEIGHTS, requires_grad=True)
    torch.tanh(torch.from_numpy(XS) @ held).sum(1).mean().backward()
    check(slopes[w], held.grad)


def test_no_examples() -> None:
    result = mm.vmap(lambda x: (mm.tanh(x) @ mm.asarray(WEIGHTS), mm.sort(x)))(mm.zeros((0, 3)))
    assert [x.shape for x in result] == [(0, 4), (0, 3)]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_gradients_of_branches_of_any_number_of_examples(size: int) -> None:
    def total(w: mm.Array, xs: mm.Array) -> mm.Array:
        chosen = mm.vmap(lambda x: mm.cond(x > 1, lambda: mm.sum(w * x), lambda: mm.sum(w**2)))
        return mm.sum(chosen(xs))

    for function in (mm.grad(total), mm.compile(mm.grad(total))):
        found = function(mm.asarray([1.0, 2.0]), mm.arange(size, dtype=mm.float32))
        expected = sum([x if x > 1 else 2 * np.array([1.0, 2.0]) for x in range(size)], np.zeros(2))
        np.testing.assert_allclose(found.numpy(), expected)


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: mm.vmap(lambda x: x)(3.0), ShapeError, r"vmap: .*3\.0.*no axis 0.*in_axes"),
    (lambda: mm.vmap(lambda x: x)(mm.ones(())), ShapeError, r"vmap: .*shape \(\).*in_axes"),
    (lambda: mm.vmap(lambda x: x, 2)(mm.ones((2, 2))), ShapeError, "vmap: .*no axis 2"),
    (
        lambda: mm.vmap(lambda x, y: x + y)(mm.ones(3), mm.ones(4)),
        ShapeError,
        r"vmap: .*\(3,\) along axis 0 \(argument 0\) and \(4,\) along axis 0",
    ),
    (lambda: mm.vmap(lambda x: x, None)(mm.ones(3)), MagmathError, "vmap: needs an argument"),
    (lambda: mm.vmap(lambda x: x, (0, 0))(mm.ones(3)), MagmathError, "in_axes has 2 entries"),
    (lambda: mm.vmap(lambda x: x, 0, None)(mm.ones(3)), MagmathError, "vmap: out_axes is None"),
    (lambda: mm.vmap(lambda x: x, 0, 4)(mm.ones(3)), ShapeError, "vmap: out_axes is 4"),
    (lambda: mm.vmap(lambda x: "a")(mm.ones(3)), TypeError, "vmap: .*must return arrays"),
    (lambda: mm.vmap(lambda x: float(x))(mm.ones(3)), TracingError, "mm.vmap"),
    (lambda: mm.vmap(3), TypeError, "vmap: needs a function"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_mistakes(mistake: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        mistake()


def test_an_array_from_outside_is_not_updated() -> None:
    total = mm.zeros(3)

    def f(x: mm.Array) -> mm.Array:
        nonlocal total
        total += x
        return x

    with pytest.raises(MagmathError, match="vmap: the function updates an array"):
        mm.vmap(f)(mm.ones((2, 3)))
    check(total, np.zeros(3, "float32"))
