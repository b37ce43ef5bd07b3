"""Second computations of intermediates, by which a program fits a memory limit: the numbers are those
of the program without them, the memory is below the limit, and `explain` names the price."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from magmath.diagnostics.explanation import Explanation
from magmath.engine.programs.memory_check import need_of
from magmath.errors import MemoryLimitError
from magmath.program.instructions import Call, Program

Step = Callable[..., Any]


@contextmanager
def pool(workers: int = 0, limit: int | None = None, *, exact: bool = True) -> Iterator[None]:
    """A pool of threads, or of this process, with a memory limit."""
    launcher = "threads" if workers else "mpiexec"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with mm.init(
            workers=workers, launcher=launcher, device="cpu", deterministic=exact,
            memory_limit=limit, seed=3,
        ):  # fmt: skip
            yield


def program_of(function: Any) -> Program:
    """The program of the last call of a compiled function."""
    result: Program = function.programs()[0].program
    return result


def again(program: Program) -> list[str]:
    """The operations of the second computations."""
    return [x.operation for x in program.instructions if isinstance(x, Call) and x.is_recomputation]


# networks -----------------------------------------------------------------------------------------


def convolutional() -> list[mm.nn.Module]:
    conv, norm, relu = mm.nn.Conv2d, mm.nn.BatchNorm, mm.nn.ReLU
    blocks = [[conv(16, 3, padding="same"), norm(), relu()] for _ in range(4)]
    blocks[2].append(mm.nn.Dropout(0.3))
    return [
        *[x for block in blocks for x in block],
        mm.nn.MaxPool2d(4),
        mm.nn.Flatten(),
        mm.nn.Dense(10),
    ]


def fitted() -> tuple[Explanation, list[float], list[Any]]:
    """The explanation of a training step, and the losses and variables after an epoch."""
    random = np.random.default_rng(0)
    images = random.normal(size=(128, 3, 16, 16)).astype("float32")
    network = mm.nn.NeuralNetwork(
        convolutional(), loss="cross_entropy", optimizer=mm.optim.Momentum(0.01)
    )
    labels = np.arange(len(images)) % 10
    history = network.fit(images, labels, batch_size=64, epochs=1, strategy="data", verbose=0)
    variables = [np.asarray(v) for v in network.module.state_dict().values()]
    return network.explain(), history.step_losses, variables


@pytest.mark.parametrize("workers", [0, 2])
def test_training_with_a_limit_equals_training_without(workers: int) -> None:
    """With dropout and the statistics of batch normalization; bit for bit in deterministic mode."""
    exact = not workers
    with pool(workers, exact=exact):
        plain, losses, variables = fitted()
    assert "computed again" not in str(plain)
    limit = int(0.85 * plain.memory)
    with pool(workers, limit, exact=exact):
        explained, limited_losses, limited = fitted()
        peak = max(counters["peak"] for counters in mm.pool().stats())
    for one, other in zip([losses, *variables], [limited_losses, *limited], strict=True):
        np.testing.assert_allclose(one, other, rtol=0 if exact else 1e-3, atol=0 if exact else 1e-5)
    assert explained.memory <= peak <= limit
    _check_explained(explained)


def _check_explained(explained: Explanation) -> None:
    """Check that an explanation names the values that are computed again, and their price."""
    text = str(explained)
    steps = [step for step in explained.instructions if step.is_recomputation]
    assert steps
    match = re.search(r"(\d+) values are computed again .*: (.*) predicted, ([\d.]+)% more", text)
    assert match, text
    assert int(match[1]) == len(steps)
    price = sum(step.seconds for step in steps)
    rest = sum(step.seconds for step in explained.instructions) - price
    assert float(match[3]) == pytest.approx(100 * price / rest, abs=0.1)
    table = text[text.index("computed again") :]
    for step in steps:
        assert f"{step.operation}, {step.layer}" in table
    assert " again  #" in text  # in the listing


# chains -------------------------------------------------------------------------------------------


def chain(depth: int, size: int = 64) -> tuple[Step, Any]:
    """A compiled gradient of a chain of equal layers, and its argument."""
    w = mm.asarray(np.random.default_rng(1).normal(size=(size, size)) / 8)

    def loss(x: Any) -> Any:
        for _ in range(depth):
            x = mm.tanh(x @ w)
        return mm.sum(x)

    return mm.compile(mm.grad(loss)), mm.asarray(np.random.default_rng(2).normal(size=(size, size)))


def test_the_memory_of_a_chain_is_sublinear() -> None:
    """A chain of n layers fits into about 2·sqrt(n) arrays, and each value is computed at most
    twice: segments, as in Chen et al. (2016)."""
    depth, nbytes = 25, 64 * 64 * 8
    with pool():
        f, x = chain(depth)
        expected = f(x).numpy()
        assert need_of(program_of(f)).nbytes > depth * nbytes
    with pool(limit=14 * nbytes):
        f, x = chain(depth)
        actual = f(x).numpy()
        program = program_of(f)
    np.testing.assert_array_equal(actual, expected)
    forward = [x for x in program.instructions if isinstance(x, Call) and x.operation == "tanh"]
    assert len(again(program)) <= 2 * depth
    assert len(forward) <= 2 * depth


def test_cheap_values_are_computed_again_first() -> None:
    """Element-wise values before the products between them."""

    def step() -> Step:
        w = mm.asarray(np.random.default_rng(1).normal(size=(256, 256)) / 16)

        def loss(x: Any) -> Any:
            for _ in range(6):
                x = mm.sin(mm.sin(x @ w) * 2.0)
            return mm.sum(x)

        return mm.compile(mm.grad(loss))

    with pool():
        f = step()
        f(mm.ones((256, 256), dtype="float64"))
        need = need_of(program_of(f)).nbytes
    with pool(limit=int(0.88 * need)):
        f = step()
        f(mm.ones((256, 256), dtype="float64"))
        result = again(program_of(f))
        cheap = result.count("sin") + result.count("multiply")
        assert cheap > 3 * result.count("gemm")


def test_refused_only_if_that_is_not_enough() -> None:
    with pool(limit=5 * 64 * 64 * 8):
        f, x = chain(25)
        with pytest.raises(MemoryLimitError, match=r"although it computes \d+ intermediates twice"):
            f(x)
        np.testing.assert_array_equal(mm.ones(3).numpy(), 1)  # the pool continues


def test_a_variable_that_is_overwritten_before_the_late_reader() -> None:
    """The value before the assignment is not computed again from the variable after it."""

    def step() -> tuple[Step, Any]:
        v = mm.variable("v", np.full((64, 64), 0.5))

        def f(x: Any) -> Any:
            values = [mm.sin(v * float(i)) for i in range(1, 9)]
            v.assign(v + x)
            total = mm.tanh(x @ v)
            for value in reversed(values):
                total = mm.tanh(total @ value)
            return total

        return mm.compile(f), v

    with pool():
        f, v = step()
        x = mm.ones((64, 64), dtype="float64") / 64
        expected = [f(x).numpy() for _ in range(2)]
        last, need = v.numpy(), need_of(program_of(f)).nbytes
    with pool(limit=need - 3 * 64 * 64 * 8):
        f, v = step()
        x = mm.ones((64, 64), dtype="float64") / 64
        try:
            actual = [f(x).numpy() for _ in range(2)]
        except MemoryLimitError:
            return
        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(v.numpy(), last)


@settings(max_examples=5)
@given(
    st.lists(
        st.tuples(st.sampled_from(["product", "sin", "add", "slice", "noise", "stack"]),
                  st.integers(0, 50), st.integers(0, 50)),
        min_size=6, max_size=24,
    ),
    st.floats(0.4, 0.95),
    st.sampled_from([0, 2]),
)  # fmt: skip
def test_random_expressions(steps: list[tuple[str, int, int]], share: float, workers: int) -> None:
    """Gradients of random expressions, with a limit and without."""

    def loss(x: Any) -> Any:
        values = [x, x * 0.5]
        for kind, i, j in steps:
            a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
            match kind:
                case "product":
                    new = mm.tanh(a @ b / 32)
                case "sin":
                    new = mm.sin(a)
                case "add":
                    new = a * b + 1.0
                case "slice":
                    new = mm.concat([a[:16], b[16:]])
                case "noise":
                    new = a * mm.random.uniform(shape=a.shape, dtype="float64")
                case _:
                    new = mm.max(mm.stack([a, b]), axis=0)
            values.append(new)
        return sum(mm.sum(value) for value in values[2:])

    def computed() -> tuple[Any, Program]:
        f = mm.compile(mm.value_and_grad(loss))
        value, slope = f(mm.asarray(np.linspace(-1, 1, 32 * 32).reshape(32, 32)))
        return [value.numpy(), slope.numpy()], program_of(f)

    with pool(workers):
        expected, program = computed()
        need = need_of(program).nbytes
    with pool(workers, int(share * need)):
        try:
            actual, program = computed()
        except MemoryLimitError:
            return
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(one, other)
