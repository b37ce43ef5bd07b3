"""Expressions of one structure that are built again and again, as the steps of a loop: gradients,
programs and records that are found again belong to the values of each step."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.arrays import saved_operands
from magmath.errors import LinAlgError, MagmathError
from magmath.graph.provenance import recent_array_cache

KINDS = ["inline", "planned", "shared"]
EXTENT = 5
STEPS: list[Callable[[Any, Any, float], Any]] = [
    lambda x, y, k: x * y + k,
    lambda x, y, k: x**k - y,
    lambda x, y, k: (x - y) * k,
    lambda x, y, k: x / (y * y + abs(k)),
    lambda x, y, k: x + y[0] * k,
    lambda x, y, k: y[k_index(k)] * x,
    lambda x, y, k: x @ y + x * k,
]


def k_index(k: float) -> int:
    return int(abs(k)) % EXTENT


@settings(deadline=None, max_examples=20)
@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_repeated_expressions(kind: str, data: st.DataObject) -> None:
    """A function of random steps, differentiated five times for other values and numbers by other
    sources, has PyTorch's values and gradients each time."""
    chosen = data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=5))
    sources = data.draw(st.sampled_from([(0,), (1,), (0, 1), (1, 0)]))
    form = data.draw(st.sampled_from(["arguments", "arrays", "variables", "both"]))
    evaluated = data.draw(st.sampled_from([None, *range(len(chosen))]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))

    def apply(x: Any, y: Any, numbers: Any, stop: Any = None) -> Any:
        for i, (step, number) in enumerate(zip(chosen, numbers, strict=True)):
            x = step(x, y, number)
            if i == stop:
                mm.evaluate(x)
        return (x * x).sum() * numbers[0]

    with current(kind, 2 if kind == "shared" else 1):
        for _ in range(5):
            given_values = [rng.uniform(0.5, 1.5, EXTENT) for _ in range(2)]
            numbers = [float(n) for n in rng.integers(1, 4, len(chosen))]
            x, y = (torch.tensor(v, requires_grad=True) for v in given_values)
            value = apply(x, y, numbers)
            value.backward()
            expected = [(x, y)[i].grad for i in sources]
            expected = [np.zeros(EXTENT) if g is None else g.numpy() for g in expected]
            actual, gradients = _by_magmath(
                form, given_values, sources, lambda x, y, n=numbers: apply(x, y, n, evaluated)
            )
            if gradients is None:
                continue
            np.testing.assert_allclose(actual, value.item(), rtol=1e-9)
            for one, other in zip(gradients, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def _by_magmath(
    form: str, values: Any, sources: Any, function: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    if form == "arguments":
        value, result = mm.value_and_grad(function, argnums=sources)(*map(mm.asarray, values))
        return float(value), [np.asarray(g) for g in result]
    if form == "variables":
        variables = [mm.variable(f"v{i}", v) for i, v in enumerate(values)]
        chosen = [variables[i] for i in sources]
        value, result = mm.value_and_grad(lambda: function(*variables), chosen)
        return float(value), [np.asarray(result[v]) for v in chosen]
    arrays = [mm.asarray(v) for v in values]
    if form == "both":
        arrays = [mm.variable("v", values[0]), arrays[1] * 1]
    value = function(*arrays)
    try:
        gradients = mm.grad(value, [arrays[i] for i in sources])
    except MagmathError:
        return None, None
    return float(value), [np.asarray(g) for g in gradients]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_through_results_of_repeated_programs(kind: str) -> None:
    """Records of one structure have the numbers of their own expressions."""
    with current(kind, 2 if kind == "shared" else 1):
        x = mm.asarray(np.linspace(0.5, 1.5, 40))
        results = []
        for k in range(1, 6):
            y = x
            for i in range(20):
                y = y * (1 + k / 100) + mm.sin(y) * (i / 1000)
            other = y * k
            mm.evaluate(y, other)
            results.append((k, y, other))
        for k, y, other in results:
            point = torch.linspace(0.5, 1.5, 40, dtype=torch.float64, requires_grad=True)
            z = point
            for i in range(20):
                z = z * (1 + k / 100) + torch.sin(z) * (i / 1000)
            (expected,) = torch.autograd.grad(z.sum(), point)
            np.testing.assert_allclose(mm.grad(y.sum(), x), expected, rtol=1e-10)
            np.testing.assert_allclose(mm.grad(other.sum(), x), k * expected, rtol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_loop(kind: str) -> None:
    """Steps with a rate that changes each time equal PyTorch's."""
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((24, 6)), rng.integers(0, 3, 24)
    with current(kind, 2 if kind == "shared" else 1):
        weights = [rng.standard_normal(s) * 0.5 for s in ((6, 8), (8,), (8, 3), (3,))]
        ours = [mm.variable(f"w{i}", w) for i, w in enumerate(weights)]
        theirs = [torch.tensor(w, requires_grad=True) for w in weights]
        data, targets = mm.asarray(x), mm.asarray(labels)

        def loss() -> mm.Array:
            hidden = mm.tanh(data @ ours[0] + ours[1])
            return mm.nn.cross_entropy(hidden @ ours[2] + ours[3], targets)

        for step in range(30):
            rate = 0.1 / (1 + step % 7)
            value, gradients = mm.value_and_grad(loss, ours)
            for v in ours:
                v -= rate * gradients[v]
            hidden = torch.tanh(torch.from_numpy(x) @ theirs[0] + theirs[1])
            expected = torch.nn.functional.cross_entropy(
                hidden @ theirs[2] + theirs[3], torch.from_numpy(labels)
            )
            actual = torch.autograd.grad(expected, theirs)
            with torch.no_grad():
                for w, g in zip(theirs, actual, strict=True):
                    w -= rate * g
            np.testing.assert_allclose(float(value), expected.item(), rtol=1e-10)
        for v, w in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(v, w.detach(), rtol=1e-9)


def test_gradients_are_computed_with_the_others_and_the_value() -> None:
    with current("planned"):
        w, b = mm.variable("w", np.ones((70, 70))), mm.variable("b", np.ones(70))
        x = mm.asarray(np.ones((70, 70)))
        value, gradients = mm.value_and_grad(lambda: mm.mean(mm.tanh(x @ w + b) ** 2), [w, b])
        mm.evaluate(gradients[b])
        assert value.is_computed
        assert gradients[w].is_computed
        value = mm.mean(mm.tanh(x @ w + b) ** 2)
        by_w, by_b = mm.grad(value, [w, b])
        mm.evaluate(value)
        assert not by_w.is_computed
        mm.evaluate(by_w)
        assert by_b.is_computed


def test_released_gradients_are_not_computed() -> None:
    with current("planned"):
        w, b = mm.variable("w", np.ones((70, 70))), mm.variable("b", np.ones((70, 70)))
        _, gradients = mm.value_and_grad(lambda: mm.sum(mm.tanh(w @ b)), [w, b])
        by_w = gradients[w]
        del gradients, _
        with mm.profile() as profile:
            mm.evaluate(by_w)
        products = [s for run in profile.runs for s in run.instructions if s.operation == "gemm"]
        assert len(products) == 2


def test_a_value_that_fails_does_not_fail_with_a_gradient() -> None:
    """A gradient that exists is returned although the value, or another gradient, fails."""
    with current("inline"):
        w = mm.variable("w", np.eye(3))
        singular = mm.variable("s", np.ones((3, 3)))
        value, gradients = mm.value_and_grad(
            lambda: mm.sum(w * 2) + mm.sum(mm.linalg.inv(singular)), [w]
        )
        np.testing.assert_array_equal(gradients[w], np.full((3, 3), 2.0))
        with pytest.raises(LinAlgError):
            float(value)
        matrix = np.eye(3)
        matrix[2, 2] = 0
        v = mm.variable("v", matrix)
        determinant = mm.linalg.slogdet(v)[1]
        gradient = mm.grad(determinant, v)
        assert float(determinant) == -np.inf
        with pytest.raises(LinAlgError):
            np.asarray(gradient)


def test_a_gradient_that_was_updated_in_place_is_not_evaluated_with_others() -> None:
    with current("inline"):
        w, b = mm.variable("w", np.ones(3)), mm.variable("b", np.ones(3))
        for _ in range(3):
            value, gradients = mm.value_and_grad(lambda: mm.sum(w * w * b), [w, b])
            changed = gradients[w]
            changed *= 3
            np.testing.assert_array_equal(gradients[b], np.ones(3))
            np.testing.assert_array_equal(changed, np.full(3, 6.0))
            assert float(value) == 3


def test_repeated_sources() -> None:
    with current("inline"):
        x, y = mm.asarray(np.linspace(1, 3, 5000)), mm.asarray(np.linspace(2, 4, 5000))
        for sources, expected in (([x, y, x], [4, 1, 4]), ([y, y, x], [1, 1, 4])) * 4:
            actual = mm.grad(mm.sum(x * x * y), sources)
            assert [g.numpy()[0] for g in actual] == expected


def test_gradients_of_several_pools() -> None:
    """The memo keeps no arrays of the pool in which a function was differentiated first."""
    for _ in range(2):
        with mm.init(workers=0):
            for _ in range(4):
                w, b = mm.variable("w", np.linspace(1, 2, 5000)), mm.variable("b", np.array(0.5))
                value, gradients = mm.value_and_grad(lambda w=w, b=b: mm.mean(w * w) + b, [w, b])
                assert float(gradients[b]) == 1
                expected = 0.5 + np.mean(np.linspace(1, 2, 5000) ** 2)
                assert float(value) == pytest.approx(expected, rel=1e-5)
                step = mm.compile(mm.value_and_grad(lambda a, c: a + c, argnums=(0, 1)))
                assert float(step(mm.asarray(1.0), mm.asarray(2.0))[1][0]) == 1


def test_results_of_minimize_in_expressions() -> None:
    """They are numbers with a record: gradients through them raise an error, as through arrays."""
    for extent in (5, 5000):
        v = mm.variable("v", np.ones(extent))
        x = mm.asarray(np.arange(extent) / 1000 + 1)
        loss = mm.sum(x * v)
        mm.optim.GradientDescent(0.1).minimize(loss, [v])
        for read in (lambda x=x: x * 1.0, lambda x=x: mm.ones(x.shape)):
            y = read() + loss
            y = y * 1.0 + loss
            mm.evaluate(y)
            with pytest.raises(MagmathError, match="assigned since"):
                mm.grad(mm.sum(y), x)


def test_threads_compute_their_own_gradients() -> None:
    """A thread that computes a gradient computes no gradients of another thread."""
    with current("inline"):
        w, b = mm.variable("w", np.ones((20, 20))), mm.variable("b", np.ones((20, 20)))
        _, gradients = mm.value_and_grad(lambda: mm.sum(w * b), [w, b])
        with ThreadPoolExecutor(1) as other:
            other.submit(mm.evaluate, gradients[w]).result()
        assert not gradients[b].is_computed
        np.testing.assert_array_equal(gradients[b], np.ones((20, 20)))


def test_a_loop_of_one_structure_has_equal_bits() -> None:
    rng = np.random.default_rng(0)
    with current("inline"):
        x = mm.asarray(rng.standard_normal(64).astype("f"))
        w = mm.asarray(rng.standard_normal((64, 64)).astype("f"))
        v = mm.variable("v", np.ones(64, "f"))
        result = set()
        for _ in range(150):
            y = x * v
            for _ in range(12):
                y = mm.tanh(w @ y * 0.1) + mm.exp(-y * y) / (1 + y * y)
            result.add(float(y.sum()))
        assert len(result) == 1


SECOND: dict[str, Callable[[mm.Variable, mm.Variable], object]] = {
    "multiply": lambda w, b: w.__imul__(0.99),
    "add": lambda w, b: w.__iadd__(b),
    "assign": lambda w, b: w.assign(w * 0.99),
    "element": lambda w, b: w.__setitem__(0, 1.0),
    "mask": lambda w, b: w.__setitem__(w > 0, 2.0),
    "named": lambda w, b: w.assign(named) if (named := w - b) is not None else None,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("second", SECOND)
def test_gradients_after_two_assignments(kind: str, second: str) -> None:
    """The gradient of a loss that read the value before both is right, or raises an error."""
    with current(kind, 2 if kind == "shared" else 1):
        for is_read in (False, True):
            w = mm.variable("w", np.array([1.0, 2.0]))
            b = mm.variable("b", np.array([3.0, 4.0]))
            loss = mm.sum((w * b) ** 2)
            if is_read:
                float(loss)
            w -= 0.01 * mm.grad(loss, w)
            SECOND[second](w, b)
            for v, expected in ((b, [6, 32]), (w, [18, 64])):
                try:
                    actual = mm.grad(loss, v).numpy()
                except MagmathError as error:
                    assert "assigned since" in str(error)  # noqa: PT017  both are allowed
                else:
                    np.testing.assert_allclose(actual, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_parameters_with_gradients_of_their_own(kind: str, is_read: bool, in_place: bool) -> None:
    """A loop may differentiate one loss by each parameter in turn, after it replaced others."""
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(100, 3))
    labels = samples @ [[1.0], [2.0], [3.0]] + 0.5
    with current(kind, 2 if kind == "shared" else 1):
        x, y = mm.asarray(samples), mm.asarray(labels)
        w, b = mm.zeros((3, 1), dtype="float64"), mm.zeros(1, dtype="float64")
        own = [torch.zeros(3, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)]
        for _ in range(60):
            loss = mm.mean((x @ w + b - y) ** 2)
            if is_read:
                float(loss)
            if in_place:
                w -= 0.1 * mm.grad(loss, w)
                b -= 0.1 * mm.grad(loss, b)
            else:
                old_w, old_b = w, b
                w = w - 0.1 * mm.grad(loss, old_w)
                b = b - 0.1 * mm.grad(loss, old_b)
            v, c = (one.requires_grad_() for one in own)
            expected = ((torch.from_numpy(samples) @ v + c - torch.from_numpy(labels)) ** 2).mean()
            actual = torch.autograd.grad(expected, [v, c])
            own = [(p - 0.1 * g).detach() for p, g in zip((v, c), actual, strict=True)]
        np.testing.assert_allclose(w, own[0], rtol=1e-9)
        np.testing.assert_allclose(b, own[1], rtol=1e-9)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_list_of_losses_keeps_few_arrays(monkeypatch: pytest.MonkeyPatch, is_read: bool) -> None:
    """Neither all former parameters, if these are arrays, nor all batches."""
    monkeypatch.setattr(saved_operands, "MAX_BYTES", 4_000_000)
    monkeypatch.setattr(recent_array_cache, "MAX_OLDER_BYTES", 4_000_000)
    with current("inline"):
        x = mm.asarray(np.ones((4, 500)))
        w, losses, former = mm.zeros((500, 500)), [], []
        for _ in range(20):
            loss = mm.mean((x @ w - 1) ** 2)
            mm.evaluate(loss)
            losses.append(loss)
            former.append(ref(w.evaluated_leaf()))
            w = w - 0.1 * mm.grad(loss, w)
        mm.evaluate(w)
        assert sum(one() is not None for one in former) < 10
        v, batches = mm.variable("v", np.ones((500, 10))), []
        for _ in range(20):
            batch = mm.asarray(np.random.default_rng(0).random((250, 500)))
            batches.append(ref(batch.evaluated_leaf()))
            value, gradients = mm.value_and_grad(lambda x=batch, v=v: mm.mean((x @ v) ** 2), [v])
            v -= 0.1 * gradients[v]
            losses.append(value)
            if is_read:
                float(value)
        assert sum(one() is not None for one in batches) < 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extent", [2, 150])
def test_a_fixed_target(kind: str, extent: int) -> None:
    """What `stop_gradient` was applied to counts as a constant, also after its variables were
    assigned twice."""
    with current(kind, 2 if kind == "shared" else 1):
        v = mm.variable("v", np.full((extent, extent), 0.5))
        a = mm.asarray(np.full((extent, extent), 1 / extent))
        target = mm.stop_gradient(mm.tanh(v @ a))
        v += 0.25
        v += 0.25
        result = mm.grad(mm.sum((v + target) ** 2), v)
        np.testing.assert_allclose(result, np.full(v.shape, 2 * (1 + np.tanh(0.5))))
