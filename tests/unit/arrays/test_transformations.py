"""`grad` and `value_and_grad` of functions, and `remat`, compared with torch.func."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import magmath as mm
from arrays import check
from engines import current
from executors import NativeWherePossible, use_native_code
from magmath.autodiff import reverse_mode, source_expression
from magmath.autodiff.independence import is_independent
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.program.arena import arrange
from magmath.transform.compiled import _CompiledFunction

RANDOM = np.random.default_rng(0)
X, W = RANDOM.normal(size=(6, 3)), RANDOM.normal(size=(3, 4))


def on_torch(value: Any) -> Any:
    """A tree of NumPy arrays as tensors."""
    if isinstance(value, dict):
        return {key: on_torch(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([on_torch(part) for part in value])
    return torch.from_numpy(value)


def on_magmath(value: Any) -> Any:
    """A tree of NumPy arrays as magmath's."""
    if isinstance(value, dict):
        return {key: on_magmath(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([on_magmath(part) for part in value])
    return mm.asarray(value)


def check_tree(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected) or isinstance(actual, mm.Array)
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        for one, other in zip(actual, expected, strict=True):
            check_tree(one, other)
    else:
        check(actual, expected.detach().numpy(), 1e-10)


PARAMETERS = {"w": W, "rest": [RANDOM.normal(size=4), (RANDOM.normal(size=(4,)),)]}


def model(xp: Any, parameters: Any, x: Any) -> Any:
    h = xp.tanh(x @ parameters["w"] + parameters["rest"][0])
    return xp.sum(h * parameters["rest"][1][0] + h**3)


@pytest.mark.parametrize("argnums", [0, 1, -1, (0, 1), (1, 0), (1,)])
def test_gradients_of_functions_of_trees(argnums: Any, every_pool: object) -> None:
    expected = torch.func.grad(lambda p, x: model(torch, p, x), argnums)(
        on_torch(PARAMETERS), on_torch(X)
    )
    given = on_magmath(PARAMETERS), on_magmath(X)
    f = mm.grad(lambda p, x: model(mm, p, x), argnums)
    check_tree(f(*given), expected)
    check_tree(mm.compile(f)(*given), expected)
    value, slopes = mm.value_and_grad(lambda p, x: model(mm, p, x), argnums)(*given)
    check_tree(slopes, expected)
    check(value, model(torch, on_torch(PARAMETERS), on_torch(X)).numpy(), 1e-10)


def test_nested_gradients_and_auxiliary_results() -> None:
    def f(x: Any) -> Any:
        return x**4

    assert float(mm.grad(mm.grad(mm.grad(f)))(2.0)) == pytest.approx(48)
    assert float(mm.compile(mm.grad(mm.grad(f)))(2.0)) == pytest.approx(48)
    assert mm.grad(f)(2.0).dtype == mm.compile(mm.grad(f))(2.0).dtype == mm.float32

    def with_auxiliary(x: mm.Array) -> Any:
        h = mm.tanh(x)
        return mm.sum(h), {"hidden": h}

    slope, auxiliary = mm.grad(with_auxiliary, has_aux=True)(mm.asarray(X))
    check(slope, 1 - np.tanh(X) ** 2)
    check(auxiliary["hidden"], np.tanh(X))
    (value, auxiliary), slope = mm.value_and_grad(with_auxiliary, has_aux=True)(mm.asarray(X))
    check(value, np.tanh(X).sum())
    check(auxiliary["hidden"], np.tanh(X))


def test_what_is_read_otherwise_counts_as_a_constant() -> None:
    x = mm.asarray(X)
    check(mm.grad(lambda a: mm.sum(a * x))(x), X)
    check(mm.grad(lambda a, b: mm.sum(a * x), 1)(x, x), np.zeros_like(X))
    check(mm.grad(lambda a, b: mm.sum(a * b), (0, 1))(x, x)[1], X)
    check(mm.grad(lambda a: mm.sum(a * mm.stop_gradient(a)))(x), X)
    v = mm.variable("v", X)
    check(mm.grad(lambda a: mm.sum(a * v))(v), X)


def test_values_may_be_asked_for_and_temporaries_released() -> None:
    def f(x: mm.Array) -> mm.Array:
        h = mm.tanh(x * mm.asarray(X))
        if float(mm.sum(h)) > 1e9:
            return mm.sum(x)
        total = mm.asarray(0.0, dtype=mm.float64)
        for _ in range(3):
            h = h + mm.asarray(2 * X) * x
            total = total + mm.sum(h**2)
            print(float(total), h)
        return total

    def theirs(x: torch.Tensor) -> torch.Tensor:
        h, total = torch.tanh(x * torch.from_numpy(X)), 0
        for _ in range(3):
            h = h + torch.from_numpy(2 * X) * x
            total = total + (h**2).sum()
        return total  # type: ignore[return-value]

    expected = torch.func.grad(theirs)(torch.from_numpy(X + 1))
    check(mm.grad(f)(mm.asarray(X + 1)), expected.numpy(), 1e-10)


# variables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_training_with_running_statistics_and_noise(
    compiled: bool, kind: str, every_pool: object
) -> None:
    """A custom loop, compared with torch: `update` takes the dictionary."""
    w, b = mm.variable("w", W), mm.variable("b", np.zeros(4))
    mean = mm.variable("mean", np.zeros(4))
    chosen: Any = {"list": [w, b], "tuple": (w, b), "dict": {"w": w, "b": b}}[kind]
    optimizer = mm.optim.GradientDescent(0.1)
    x = mm.asarray(X)

    def loss() -> Any:
        h = x @ w + b
        mean.assign(0.9 * mean + 0.1 * mm.mean(h, axis=0))
        noise = mm.random.normal(shape=(4,), dtype="float64")
        return mm.mean((mm.tanh(h - mm.mean(h, axis=0)) - noise) ** 2), mm.mean(h)

    def step() -> Any:
        (value, auxiliary), slopes = mm.value_and_grad(loss, chosen, has_aux=True)
        optimizer.update(slopes)
        return value, auxiliary

    mm.random.seed(7)
    run = mm.compile(step) if compiled else step
    actual = [float(run()[0]) for _ in range(4)]
    mm.random.seed(7)
    held = [torch.tensor(W, requires_grad=True), torch.zeros(4, dtype=torch.float64)]
    held[1].requires_grad_()
    running, expected = np.zeros(4), []
    for _ in range(4):
        noise = mm.random.normal(shape=(4,), dtype="float64").numpy()
        h = torch.from_numpy(X) @ held[0] + held[1]
        running = 0.9 * running + 0.1 * h.mean(0).detach().numpy()
        value = ((torch.tanh(h - h.mean(0)) - torch.from_numpy(noise)) ** 2).mean()
        slopes = torch.autograd.grad(value, held)
        held = [(p - 0.1 * s).detach().requires_grad_() for p, s in zip(held, slopes, strict=True)]
        expected.append(value.item())
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    check(w, held[0].detach().numpy(), 1e-10)
    check(mean, running, 1e-10)


def test_variables_that_are_not_read_have_gradient_zero() -> None:
    v, w = mm.variable("v", X), mm.variable("w", W)
    value, slopes = mm.value_and_grad(lambda: mm.sum(v**2), [v, w])
    assert list(slopes.keys()) == [v, w]
    check(slopes[v], 2 * X)
    check(slopes[w], np.zeros_like(W))
    check(value, (X**2).sum())
    assert mm.value_and_grad(lambda: mm.sum(v), [])[1] == {}
    assert list(mm.value_and_grad(lambda: mm.sum(v), v)[1].keys()) == [v]


def test_multiples_of_gradients_by_what_is_not_read() -> None:
    """A quotient is one if its dividend is."""
    v, w = mm.variable("v", X), mm.variable("w", W)
    _, slopes = mm.value_and_grad(lambda: mm.sum(v**2), [v, w])
    unread, read = slopes[w], slopes[v]
    for multiple in (2.0 * unread, unread / 2.0, -unread + unread, unread / unread):
        assert is_independent(multiple.node)
    for other in (1.0 / unread, read / 2.0, mm.sum(read) + unread):
        assert not is_independent(other.node)


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_after_a_value_was_printed(compiled: bool) -> None:
    v = mm.variable("v", X)

    def f() -> mm.Array:
        h = mm.tanh(v * mm.asarray(X))
        if not compiled:
            print(h, float(mm.sum(h)))
        return mm.sum(h)

    def slope() -> mm.Array:
        return mm.value_and_grad(f, [v])[1][v]

    check((mm.compile(slope) if compiled else slope)(), X * (1 - np.tanh(X * X) ** 2))


# remat --------------------------------------------------------------------------------------------


def layer(x: mm.Array, a: mm.Array, b: mm.Array) -> mm.Array:
    h = mm.sin(x @ a)
    h = h * mm.sigmoid(h + 1)
    noise = mm.random.uniform(shape=x.shape, dtype="float64")
    return x + mm.tanh(h @ b) * noise


def network(rows: int, depth: int, wrap: Callable[..., Any]) -> tuple[Any, list[mm.Variable]]:
    random = np.random.default_rng(1)
    pairs = [
        (
            mm.variable(f"a{i}", random.normal(size=(16, 64)) / 4),
            mm.variable(f"b{i}", random.normal(size=(64, 16)) / 8),
        )
        for i in range(depth)
    ]
    x = mm.asarray(random.normal(size=(rows, 16)), layout=mm.Layout.split(0))

    def loss() -> mm.Array:
        h = x
        for number, (a, b) in enumerate(pairs):
            if number % 2:
                h = wrap(layer)(h, a, b)
            else:  # parameters that it is not given
                h = wrap(lambda h, a=a, b=b: {"h": layer(h, a, b)})(h)["h"]
        return mm.mean(h**2)

    return loss, [v for pair in pairs for v in pair]


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@pytest.mark.parametrize("kind", ["inline", "planned", "shared", "messages", "exact"])
def test_recomputed_networks_have_the_same_gradients(kind: str) -> None:
    with current(kind, 1 if kind in ("inline", "planned") else 3):
        result = []
        for wrap in (plain, mm.remat, lambda f: mm.remat(mm.remat(f))):
            loss, variables = network(8, 4, wrap)
            for transform in (plain, mm.compile):
                mm.random.seed(0)
                step = transform(
                    lambda loss=loss, variables=variables: [
                        *(r := mm.value_and_grad(loss, variables))[1].values(), r[0]
                    ]
                )  # fmt: skip
                result.append([x.numpy() for x in step()])
        for other in result[1:]:
            for x, y in zip(result[0], other, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def planned_bytes(rows: int, depth: int, wrap: Callable[..., Any]) -> int:
    """The arena of a compiled gradient, of one worker."""
    loss, variables = network(rows, depth, wrap)
    step = mm.compile(lambda: list(mm.value_and_grad(loss, variables)[1].values()))
    step()
    assert isinstance(step, _CompiledFunction)
    ((program, _),) = step.programs()
    return arrange(program).nbytes


@pytest.mark.parametrize(("kind", "workers"), [("planned", 1), ("shared", 2), ("shared", 4)])
def test_recomputation_saves_memory(kind: str, workers: int) -> None:
    """Each further layer costs the memory of its result, and not of its intermediates."""
    with current(kind, workers):
        rows, itemsize = 4096, 8
        kept = [planned_bytes(rows, depth, plain) for depth in (4, 8)]
        again = [planned_bytes(rows, depth, mm.remat) for depth in (4, 8)]
        result = rows * 16 * itemsize // workers
        intermediate = rows * 64 * itemsize // workers
        assert kept[1] - kept[0] > 4 * 2 * intermediate
        assert again[1] - again[0] < 4 * (result + intermediate / 2)
        assert again[1] < 0.6 * kept[1]


@pytest.mark.parametrize(("kind", "workers"), [("planned", 1), ("shared", 2)])
def test_recomputed_networks_have_a_native_form(
    kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_native_code(monkeypatch)

    def trained(wrap: Callable[..., Any]) -> Any:
        x = mm.variable("x", X)
        f = wrap(lambda x: mm.sum(mm.tanh(mm.sin(x) * 2) ** 2))

        def body(i: Any, loss: mm.Array) -> mm.Array:
            value, slopes = mm.value_and_grad(lambda: f(x * 1.5), [x])
            x.assign(x - 0.1 * slopes[x])
            return value

        loss = mm.fori_loop(0, 5, body, mm.asarray(0.0, dtype="float64"))
        return loss.numpy(), x.numpy()

    NativeWherePossible.used.clear()
    with current(kind, workers):
        for one, other in zip(trained(plain), trained(mm.remat), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)
    assert workers > 1 or set(NativeWherePossible.used) == {"native"}


def test_remat_composes() -> None:
    weights = mm.asarray(W)

    def f(x: mm.Array) -> mm.Array:
        return mm.sum(mm.tanh(x @ weights) ** 2)

    x, rows = mm.asarray(X[0]), mm.asarray(X)
    again = mm.remat(f)
    check(mm.vmap(mm.grad(again))(rows), mm.vmap(mm.grad(f))(rows).numpy())
    check(
        mm.grad(lambda x: mm.sum(mm.vmap(again)(x)))(rows),
        mm.grad(lambda x: mm.sum(mm.vmap(f)(x)))(rows).numpy(),
    )
    twice = [mm.grad(lambda x, f=f: mm.sum(mm.grad(f)(x) ** 2))(x).numpy() for f in (f, again)]
    np.testing.assert_allclose(twice[0], twice[1])
    check(mm.compile(mm.remat(mm.grad(f)))(x), mm.grad(f)(x).numpy())

    def noisy(x: mm.Array) -> mm.Array:
        return mm.sum(x**2 * mm.random.normal(shape=(3,), dtype="float64"))

    mm.random.seed(1)
    expected = mm.vmap(mm.grad(noisy))(rows).numpy()
    mm.random.seed(1)
    check(mm.vmap(mm.grad(mm.remat(noisy)))(rows), expected)
    stopped = mm.remat(lambda x: mm.sum(x * mm.stop_gradient(x)))
    check(mm.grad(stopped)(rows), X)


def test_remat_of_functions_that_assign_and_of_closures() -> None:
    v, count = mm.variable("v", X), mm.variable("count", 0)

    def f() -> Any:
        count.assign(count + 1)
        return mm.sum(mm.tanh(v) ** 2), mm.asarray(3)

    value, slopes = mm.value_and_grad(lambda: mm.remat(f)()[0], [v])
    check(slopes[v], 2 * np.tanh(X) * (1 - np.tanh(X) ** 2))
    assert int(count) == 1
    check(value, (np.tanh(X) ** 2).sum())


@pytest.mark.parametrize("wrap", [lambda f: f, mm.compile])
def test_results_of_remat_that_depend_on_captured_arrays_only(wrap: Callable[..., Any]) -> None:
    """A penalty on weights beside the result of a layer, alone, or of an argument of integers."""
    w, x, number = mm.asarray(W), mm.asarray(X), mm.asarray(2)

    def slope(w: mm.Array, remat: Callable[..., Any]) -> mm.Array:
        layer = remat(lambda x: (mm.tanh(x @ w), mm.sum(w**2), w))
        alone = remat(lambda n: {"cubes": mm.sum(w**3), "number": n})

        def loss() -> mm.Array:
            y, penalty, same = layer(x)
            return mm.sum(y) + penalty + mm.sum(same**4) + alone(number)["cubes"]

        return mm.grad(loss(), w)

    found, known = [wrap(lambda w, f=f: slope(w, f))(w) for f in (mm.remat, lambda f: f)]
    check(found, known.numpy())
    mapped = mm.vmap(mm.remat(lambda x: (x, mm.sum(w))), out_axes=(0, None))(x)
    check(mapped[1], W.sum())


TRANSFORMED: dict[str, Callable[[Any], Callable[[mm.Array], mm.Array]]] = {
    "remat": mm.remat,
    "vmap": lambda f: lambda x: mm.vmap(f)(x[None])[0],
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("reads_after", [True, False])
def test_reads_of_variables_that_the_function_assigns(name: str, reads_after: bool) -> None:
    """In a compiled function the results are those of the function itself; outside of one, an error
    says so if a variable is read after its assignment."""

    def results(wrap: Callable[[Any], Any], trace: Callable[[Any], Any]) -> list[float]:
        v, w = mm.variable("v", 1.5, dtype="float64"), mm.variable("w", 2.0, dtype="float64")

        def f(x: mm.Array) -> mm.Array:
            y = v * mm.sum(x * w)
            v.assign(0.9 * v + 0.1)
            return y * v if reads_after else y

        def step() -> tuple[mm.Array, list[mm.Array]]:
            value, slopes = mm.value_and_grad(lambda: wrap(f)(mm.asarray(X[0])), [v, w])
            return value, [*slopes.values()]

        value, slopes = trace(step)()
        return [float(x) for x in (value, *slopes, v)]

    expected = results(plain, plain)
    np.testing.assert_allclose(results(TRANSFORMED[name], mm.compile), expected)
    if reads_after:
        with pytest.raises(MagmathError, match=f"^{name}: the function reads variable v after"):
            results(TRANSFORMED[name], plain)
    else:
        np.testing.assert_allclose(results(TRANSFORMED[name], plain), expected)


MISTAKES: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: mm.grad(lambda x: x)(mm.ones(3)), ShapeError, r"0-d array, it returned shape \(3,\)"),
    (lambda: mm.grad(lambda x: 3.0)(mm.ones(3)), TypeError, "must return a 0-d array"),
    (lambda: mm.grad(lambda x: (mm.sum(x), x))(mm.ones(3)), TypeError, "has_aux"),
    (lambda: mm.grad(lambda x: mm.sum(x), has_aux=True)(mm.ones(3)), TypeError, "has_aux"),
    (lambda: mm.grad(lambda x: mm.sum(x))(mm.arange(3)), DTypeError, "argument 0 .*int64"),
    (lambda: mm.grad(lambda x: mm.sum(x), 1)(mm.ones(3)), MagmathError, "names argument 1"),
    (lambda: mm.grad(lambda x: mm.sum(x))(), MagmathError, "0 positional arguments"),
    (lambda: mm.value_and_grad(mm.ones(3), 0), TypeError, "needs a function"),  # type: ignore[call-overload]
    (lambda: mm.value_and_grad(lambda: mm.ones(()), [mm.ones(3)]), TypeError, "needs variables"),  # type: ignore[list-item]
    (
        lambda: mm.value_and_grad(lambda: mm.ones(()), [mm.variable("n", mm.arange(3))]),
        DTypeError,
        "variable n is int64",
    ),
    (lambda: mm.remat(3), TypeError, "remat: needs a function"),  # type: ignore[arg-type]
    (lambda: mm.remat(lambda x: "a")(mm.ones(3)), TypeError, "remat: .*must return arrays"),
]


@pytest.mark.parametrize(("mistake", "kind", "message"), MISTAKES)
def test_mistakes(mistake: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        mistake()


def test_a_gradient_does_not_walk_the_steps_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of pending steps costs the same in each step."""
    walked: list[int] = []
    walk = reverse_mode.topological_until

    def counted(outputs: Any, ends: Any, *rest: Any) -> Any:
        actual = walk(outputs, ends, *rest)
        walked.append(len(actual))
        return actual

    for module in (reverse_mode, source_expression):
        monkeypatch.setattr(module, "topological_until", counted)
    x = mm.asarray([0.5, -0.25])
    slope = mm.grad(lambda w: mm.sum(mm.tanh(w) * x))
    w, expected = mm.asarray([1.0, 2.0]), np.array([1.0, 2.0])
    for _ in range(30):
        w = w - 0.1 * slope(w)
        expected = expected - 0.1 * (1 - np.tanh(expected) ** 2) * np.array([0.5, -0.25])
    assert max(walked) < 20
    np.testing.assert_allclose(np.asarray(w), expected, rtol=1e-5)


def test_arguments_that_depend_on_one_another_are_independent() -> None:
    x = mm.asarray(3.0)
    slopes = mm.grad(lambda a, b: a * b, argnums=(0, 1))(x, x * 2)
    assert [float(slope) for slope in slopes] == [6.0, 3.0]
    nested = mm.grad(lambda a: mm.grad(lambda b: a * b * b)(a * 2))(x)
    assert float(nested) == 24.0


class Motion(NamedTuple):
    place: Any
    speed: Any


def test_named_tuples_keep_their_class() -> None:
    """In arguments, results, carries and branches, as in JAX."""
    start = Motion(mm.asarray([0.0, 1.0]), mm.asarray([1.0, -1.0]))

    def moved(now: Motion, seconds: float = 0.5) -> Motion:
        return Motion(now.place + seconds * now.speed, now.speed)

    def energy(now: Motion) -> Any:
        return mm.sum(now.speed**2 * now.place)

    assert mm.compile(moved)(start).place.tolist() == [0.5, 0.5]
    assert type(mm.compile(moved)(start, 1.0)) is Motion
    slopes = mm.compile(mm.grad(energy))(start)
    assert type(slopes) is Motion
    assert slopes.place.tolist() == [1.0, 1.0]
    looped = mm.fori_loop(0, 4, lambda i, now: moved(now), start)
    assert (type(looped), looped.place.tolist()) == (Motion, [2.0, -1.0])
    carried, places = mm.scan(lambda now, _: (moved(now), now.place), start, None, length=2)
    assert (type(carried), places.shape) == (Motion, (2, 2))
    ended = mm.while_loop(lambda now: now.place[0] < 3, moved, start)
    assert (type(ended), float(ended.place[0])) == (Motion, 3.0)
    chosen = mm.cond(mm.asarray(True), moved, lambda now: now, start)
    assert type(chosen) is Motion
    rows = mm.vmap(lambda now: moved(now))(Motion(mm.ones((3, 2)), mm.ones((3, 2))))
    assert (type(rows), rows.place.shape) == (Motion, (3, 2))
    assert mm.compile(mm.linalg.eigh)(mm.eye(2)).eigenvalues.tolist() == [1.0, 1.0]
    state = OrderedDict(b=mm.ones(1), a=mm.zeros(1))
    assert type(mm.compile(lambda s: s)(state)) is OrderedDict


def test_arrays_of_other_libraries_are_arguments_and_are_updated() -> None:
    """As without compilation, `x += 1` writes into the caller's array."""

    def counted(x: Any) -> Any:
        x += 1
        return mm.sum(x)

    compiled = mm.compile(counted)
    given, tensor = np.zeros(3), torch.zeros(3, dtype=torch.float64)
    for step in range(1, 4):
        assert float(compiled(given)) == float(compiled(tensor)) == 3.0 * step
        assert given.tolist() == tensor.tolist() == [float(step)] * 3
    total = mm.compile(lambda x, y: (x * y).sum())
    assert float(total(torch.ones(3), mm.ones(3))) == 3.0


def test_one_array_of_numpy_given_twice_is_one_argument() -> None:
    def product(a: Any, b: Any) -> Any:
        a += 1
        b += 1
        return a * b

    given = np.zeros(2)
    assert mm.compile(product)(given, given).tolist() == [4.0, 4.0]
    assert given.tolist() == [2.0, 2.0]


def test_grad_of_a_function_by_variables() -> None:
    v, w = mm.variable("v", [1.0, 2.0]), mm.variable("w", 3.0)

    def loss() -> mm.Array:
        return mm.sum(v * v) * w

    for given in ([v, w], {"a": v, "b": w}):
        result = mm.grad(loss, given)
        assert {x.name: y.tolist() for x, y in result.items()} == {"v": [6.0, 12.0], "w": 5.0}
    slopes, count = mm.grad(lambda: (loss(), 7), [w], has_aux=True)
    assert (slopes[w].tolist(), count) == (5.0, 7)
    with pytest.raises(TypeError, match=r"grad: needs variables .*given str"):
        mm.grad(loss, "v")
    with pytest.raises(ShapeError, match=r"^grad: the function must return a 0-d array"):
        mm.grad(lambda x: x * 2)(mm.ones(3))


def test_what_an_assignment_of_complex_numbers_lacks() -> None:
    v, x, c = mm.variable("v", [1.0]), mm.ones(2), 1j * mm.ones(1)
    with pytest.raises(DTypeError, match=r"variable v is float.*mm\.real\(x\), or mm\.abs\(x\)"):
        v.assign(c)
    with pytest.raises(DTypeError, match=r"cannot put complex.*mm\.real\(value\)"):
        x[0] = 1j
