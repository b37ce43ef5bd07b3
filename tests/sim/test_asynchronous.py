"""Asynchronous updates equal NumPy models of their equation, and no delay is above its bound."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.comm import update_clock
from magmath.core.update_rules import Denied, UpdateRules
from magmath.engine import session
from magmath.errors import MagmathError, MemoryLimitError, NonFiniteLoss
from magmath.executor import asynchronous_run
from magmath.executor.context import Context
from magmath.executor.executable import Executable
from magmath.executor.message_servers import MessageServers
from magmath.executor.servers import SharedServers
from magmath.memory.heap import Block
from magmath.parallel import Asynchronous, CompiledStep
from magmath.program.instructions import Program

DRAW = np.random.default_rng(3)
X = DRAW.normal(size=(70, 6))
Y = X @ DRAW.normal(size=(6, 2)) + 0.1 * DRAW.normal(size=(70, 2))
POOLS = [("inline", 1), ("shared", 3), ("messages", 4), ("hosts", 3)]
RATE = 0.05


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


def linear(rule: Any = None) -> tuple[nn.NeuralNetwork, nn.Dense]:
    layer = nn.Dense(2, bias=False)
    optimizer = rule or mm.optim.GradientDescent(RATE)
    net = nn.NeuralNetwork([layer], loss="mean_squared_error", optimizer=optimizer, seed=1)
    net.build((1, 6))
    return net, layer


def gradient(w: np.ndarray, step: int, batch: int) -> np.ndarray:
    x, y = X[step * batch :][:batch], Y[step * batch :][:batch]
    return 2 * x.T @ (x @ w - y) / y.size


def layers() -> list[nn.Module]:
    return [nn.Dense(16, bias=False), nn.BatchNorm(), nn.ReLU(), nn.Dropout(0.2), nn.Dense(2)]


def network(rule: str = "momentum") -> nn.NeuralNetwork:
    return nn.NeuralNetwork(layers(), loss="mean_squared_error", optimizer=rule, seed=1)


def state(net: nn.NeuralNetwork) -> dict[str, np.ndarray]:
    return {name: v.numpy() for name, v in net.module.state_dict().items()}


def check_equal(actual: nn.NeuralNetwork, expected: nn.NeuralNetwork) -> None:
    np.testing.assert_allclose(actual.history.step_losses, expected.history.step_losses, rtol=1e-9)
    for name, value in state(expected).items():
        np.testing.assert_allclose(state(actual)[name], value, rtol=1e-8, atol=1e-10, err_msg=name)


# schedules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("schedule", [[0], [2], [0, 3, 1], [3, 3, 0, 2, 1]], ids=str)
def test_a_schedule_is_its_equation(
    kind: str, workers: int, momentum: float, schedule: list[int]
) -> None:
    """w ← w - η g(w of d updates ago), with batches that do not divide, over several epochs."""
    with current(kind, workers):
        rule = mm.optim.Momentum(RATE, momentum) if momentum else None
        net, layer = linear(rule)
        past, velocity = [layer.weight.numpy()], np.zeros((6, 2))
        for t in range(15):
            delay = min(schedule[t % len(schedule)], t)
            slope = gradient(past[-1 - delay], t % 5, 16)
            velocity = momentum * velocity + slope
            past.append(past[-1] - RATE * velocity)
        history = net.fit(X, Y, batch_size=16, epochs=3, shuffle=False,
                          strategy=Asynchronous(3, schedule=schedule))  # fmt: skip
        np.testing.assert_allclose(layer.weight.numpy(), past[-1], rtol=1e-10)
        expected = [min(schedule[t % len(schedule)], t) for t in range(15)]
        assert history.delays[0]["mean"] == np.mean(expected[:5])
        assert history.delays[2]["max"] == max(expected[10:])
        assert history.delays[1]["histogram"] == np.bincount(expected[5:10]).tolist()


def test_no_delay_is_plain_training_and_workers_change_nothing() -> None:
    with current("inline"):
        plain = network("adam")
        plain.fit(X, Y, batch_size=16, epochs=1, strategy="data")
    ends = []
    for kind, workers in POOLS[:3]:
        with current(kind, workers):
            none = network("adam")
            none.fit(X, Y, batch_size=16, epochs=1, strategy=Asynchronous(3, schedule=[0]))
            check_equal(none, plain)
            some = network("adam")
            some.fit(X, Y, batch_size=16, epochs=1, strategy=Asynchronous(3, schedule=[2, 3]))
            ends.append(some)
            check_equal(some, ends[0])
    assert np.abs(state(ends[0])["0.weight"] - state(plain)["0.weight"]).max() > 1e-4


def test_a_schedule_in_a_loop_of_ones_own() -> None:
    ends = []
    for explicit in (False, True):
        with current("shared", 2):
            net, layer = linear()
            strategy = Asynchronous(2, schedule=[1, 2, 0])
            if not explicit:
                net.fit(X[:64], Y[:64], batch_size=16, epochs=2, shuffle=False, strategy=strategy)
            else:
                module = net.module
                step = CompiledStep(lambda x, y, m=module: mm.mean((m(x) - y) ** 2), module,
                                    mm.optim.GradientDescent(RATE), strategy)  # fmt: skip
                for i in [0, 16, 32, 48] * 2:
                    step(X[i : i + 16], Y[i : i + 16])
            ends.append(layer.weight.numpy())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-12)


def test_an_assigned_parameter_begins_the_schedule_anew() -> None:
    with current("inline"):
        ends = []
        net, layer = linear()
        first = layer.weight.numpy()
        strategy = Asynchronous(3, schedule=[0, 3])
        for _ in range(2):
            net.fit(X, Y, batch_size=35, epochs=2, shuffle=False, strategy=strategy)
            ends.append(layer.weight.numpy())
            layer.weight.assign(first)
        np.testing.assert_array_equal(ends[0], ends[1])


@pytest.mark.parametrize("updates", [1, 2, 5])
@pytest.mark.parametrize("change", ["assigned", "frozen"])
def test_a_change_of_one_parameter_leaves_no_older_values_of_others(
    change: str, updates: int
) -> None:
    """Without delays training is plain, whatever the number of updates before."""

    def trained(strategy: Any) -> dict[str, np.ndarray]:
        net = nn.NeuralNetwork([nn.Dense(4), nn.Dense(2)], loss="mean_squared_error",
                               optimizer=mm.optim.GradientDescent(RATE), seed=1)  # fmt: skip
        rows = 14 * updates
        for i in range(3):
            net.fit(X[:rows], Y[:rows], batch_size=14, epochs=1, shuffle=False, strategy=strategy)
            if change == "assigned":
                weight = net.module.parameters()[i]
                weight.assign(weight.numpy() * 0.5)
            elif change == "frozen":
                net.module.unfreeze()
                net.module.freeze(str(i % 2))
        return state(net)

    with current("inline"):
        expected = trained("data")
        actual = trained(Asynchronous(3, schedule=[0]))
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-9, err_msg=name)


class TwoHeads(nn.Module):
    """A linear network; the loss may use one of its heads or both."""

    def __init__(self) -> None:
        self.heads = [nn.Dense(2, bias=False), nn.Dense(2, bias=False)]
        self.used = [0, 1]

    def __call__(self, x: mm.Array) -> mm.Array:
        return sum((self.heads[i](x) for i in self.used), mm.zeros(()))


@pytest.mark.parametrize("way", ["step", "fit", "checkpoint"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_a_parameter_that_the_loss_does_not_use_has_a_past(
    kind: str, workers: int, way: str, tmp_path: Path
) -> None:
    """The steps of the others have their delays, also when it is used again."""
    delay, uses = 2, [[0], [0, 1], [1], [0, 1]]
    with current(kind, workers):
        module, strategy = TwoHeads(), Asynchronous(delay, schedule=[delay])
        module.build((1, 6))
        past = [np.stack([head.weight.numpy() for head in module.heads])]
        rule = mm.optim.GradientDescent(RATE)
        trainer = mm.train.Trainer(module, "mean_squared_error", rule, strategy=strategy)
        step = CompiledStep("mean_squared_error", module, rule, strategy)
        for used in uses:
            module.used = used
            for _ in range(4):
                old = past[max(0, len(past) - 1 - delay)]
                slope = gradient(old[used].sum(axis=0), 0, 70)
                new = past[-1].copy()
                new[used] -= RATE * slope
                past.append(new)
            if way == "step":
                for _ in range(4):
                    step(X, Y)
            elif way == "fit":
                for _ in range(2):
                    trainer.fit(X, Y, batch_size=70, epochs=2)
            else:
                trainer.fit(X, Y, batch_size=70, epochs=4, checkpoint=tmp_path / str(len(past)))
        for i, head in enumerate(module.heads):
            np.testing.assert_allclose(head.weight.numpy(), past[-1][i], rtol=1e-10)


def test_an_assigned_parameter_that_the_loss_does_not_use_begins_the_schedule_anew() -> None:
    with current("inline"):
        module = TwoHeads()
        rule, strategy = mm.optim.GradientDescent(RATE), Asynchronous(3, schedule=[3])
        trainer = mm.train.Trainer(module, "mean_squared_error", rule, strategy=strategy)
        module.build((1, 6))
        module.used = [0]
        trainer.fit(X, Y, batch_size=70)
        module.heads[1].weight.assign(module.heads[1].weight * 2.0)
        module.used = [0, 1]
        before = [head.weight.numpy() for head in module.heads]
        trainer.fit(X, Y, batch_size=70)
        for head, value in zip(module.heads, before, strict=True):
            expected = value - RATE * gradient(before[0] + before[1], 0, 70)
            np.testing.assert_allclose(head.weight.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("schedule", [[1, 3, 2], None], ids=str)
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 3)])
def test_a_checkpoint_continues(
    kind: str, workers: int, schedule: list[int] | None, tmp_path: Path
) -> None:
    """With a schedule, or without delays, training goes on as if it had not stopped."""
    with current(kind, workers):
        ends = []
        for stops in ([4], [2, 4]):
            for epochs in stops:
                net = network("adam")
                staleness = 0 if schedule is None else 3
                strategy = Asynchronous(staleness, schedule=schedule)
                net.fit(X, Y, batch_size=16, epochs=epochs, strategy=strategy,
                        checkpoint=tmp_path / str(len(stops)), resume=True)  # fmt: skip
            ends.append(net)
        check_equal(ends[1], ends[0])
        assert len(ends[1].history.delays) == 4


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_memory_of_a_program_that_does_not_fit_is_freed(
    kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each of its allocations: the program is defined again after this one has failed."""
    lost: list[int] = []

    def bind_after_failures(program: Program, context: Context) -> Executable:
        if program.asynchronous is None:
            return Executable(program, context)
        heap = context.heap
        allocate = heap.allocate
        for allowed in itertools.count():
            left = iter(range(allowed))

            def limited(nbytes: int, holder: object = "unnamed", left: Any = left) -> Block:
                if nbytes and next(left, None) is None:
                    raise MemoryLimitError("no memory")
                return allocate(nbytes, holder)

            before = heap.in_use
            vars(heap)["allocate"] = limited
            try:
                return Executable(program, context)
            except MemoryLimitError:
                lost.append(heap.in_use - before)
            finally:
                del vars(heap)["allocate"]
        raise AssertionError

    with current(kind, workers):
        net = network()
        monkeypatch.setattr("magmath.executor.executable.Executable", bind_after_failures)
        net.fit(X, Y, batch_size=14, epochs=1, strategy=Asynchronous(1))
    assert len(lost) >= 5 * workers
    assert max(lost) <= 0


# asynchronous -------------------------------------------------------------------------------------


class Log:
    """What the workers did: for each update its step, and the version of its copies."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.current: dict[int, list[int]] = {}
        self.complete: dict[int, int] = {}  # updates before a worker's copies
        self.updates: dict[int, tuple[int, int, int]] = {}  # number → step, version, worker

    def took(self, rank: int, step: int) -> None:
        self.current[rank] = [step]

    def began(self, rank: int, number: int) -> None:
        with self.lock:
            step, version = self.current[rank]
            self.updates[number] = step, version, rank


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, computing: Any = None) -> Iterator[Log]:
    """Logs the clock. `computing(rank, log)` is called when a worker has made its copies."""
    log = Log()
    permit = UpdateRules.take

    def logged_permit(self: UpdateRules, worker: int, steps: int) -> int | Denied:
        step = permit(self, worker, steps)
        if not isinstance(step, Denied):
            log.complete[worker] = int(self._copied[worker]) - 1
        return step

    with monkeypatch.context() as patch:
        patch.setattr(UpdateRules, "take", logged_permit)
        for servers in (SharedServers, MessageServers):
            watch(servers, log, patch, computing)
        yield log


def watch(servers: Any, log: Log, patch: pytest.MonkeyPatch, computing: Any) -> None:
    """Log what the workers do with servers of a class."""
    take, copy, begin = servers.take, servers.copy, servers.begin

    def logged_take(self: Any) -> int | None:
        step = take(self)
        if step is not None:
            log.took(self._comm.rank, step)
        return step  # type: ignore[no-any-return]

    def logged_copy(self: Any) -> list[int]:
        versions = copy(self)
        log.current[self._comm.rank].append(versions[0])
        if computing is not None:
            computing(self._comm.rank, log)
        return versions  # type: ignore[no-any-return]

    def logged_begin(self: Any) -> int:
        number = begin(self)
        log.began(self._comm.rank, number)
        return number  # type: ignore[no-any-return]

    for name, method in (("take", logged_take), ("copy", logged_copy), ("begin", logged_begin)):
        patch.setattr(servers, name, method)


@pytest.mark.parametrize("kind", ["shared", "messages", "hosts"])
@pytest.mark.parametrize(("workers", "staleness"), [(2, 1), (3, 4), (3, 1), (4, 2), (8, 7)])
def test_updates_are_the_equation_for_the_delays_that_occurred(
    kind: str, workers: int, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(workers)
    pauses = draw.uniform(0, 0.003, workers)
    set_counter = update_clock.set_counter

    def late(*arguments: Any) -> None:
        """Other workers run before a lock is free, an update counts, …"""
        time.sleep(0.0003)
        set_counter(*arguments)

    monkeypatch.setattr(update_clock, "set_counter", late)
    with (
        current(kind, workers),
        watched(monkeypatch, lambda r, _: time.sleep(pauses[r])) as log,
    ):
        net, layer = linear()
        past = [layer.weight.numpy()]
        net.fit(X, Y, batch_size=2, epochs=1, shuffle=False, strategy=Asynchronous(staleness))
    assert sorted(log.updates) == list(range(35))
    assert sorted(step for step, _, _ in log.updates.values()) == list(range(35))
    delays = []
    for number in range(35):
        step, version, _ = log.updates[number]
        delays.append(number - version)
        past.append(past[-1] - RATE * gradient(past[version], step, 2))
    np.testing.assert_allclose(layer.weight.numpy(), past[-1], rtol=1e-10)
    assert max(delays) <= staleness
    result = net.history.delays[0]
    assert result["max"] == max(delays)
    assert result["mean"] == pytest.approx(np.mean(delays))
    assert result["histogram"] == np.bincount(delays).tolist()


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_without_delays_it_is_plain_training(kind: str, workers: int, rule: str) -> None:
    """One worker at a time: with dropout, running statistics, step counts and a last batch."""
    with current("inline"):
        plain = network(rule)
        plain.fit(X, Y, batch_size=16, epochs=2, strategy="data")
    with current(kind, workers):
        net = network(rule)
        net.fit(X, Y, batch_size=16, epochs=2, strategy=Asynchronous(0, servers=2))
        check_equal(net, plain)
        assert net.history.delays[-1] == {"mean": 0.0, "max": 0, "histogram": [5]}


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_steps_report_and_draw_the_same_in_any_order(kind: str, workers: int) -> None:
    """If nothing is learned, the losses of all steps, with their own random numbers, and the
    metrics of the epoch are those of plain training; so are the states of generators."""
    labels = np.argmax(Y, axis=1)
    ends = []
    for pool, strategy in ((("inline", 1), "data"), ((kind, workers), Asynchronous(6, servers=2))):
        with current(*pool):
            own = [
                nn.Dense(9, bias=False),
                nn.Dropout(0.5, seed=4),
                nn.Dense(2, bias=False),
                nn.Dropout(0.1),
            ]
            net = nn.NeuralNetwork(own, optimizer=mm.optim.Momentum(1e-30), seed=1)
            mm.random.seed(3)
            net.fit(X, labels, batch_size=4, epochs=2, strategy=strategy,
                    metrics=["accuracy", "f1"])  # fmt: skip
            ends.append(net)
    check_equal(ends[1], ends[0])
    assert ends[1].history.history["f1"] == pytest.approx(ends[0].history.history["f1"])
    assert ends[1].history.accuracy == pytest.approx(ends[0].history.accuracy)
    assert len(set(ends[0].history.step_losses)) > 30


def applied_steps(net: nn.NeuralNetwork) -> set[int]:
    """Return the step counts of the parameters."""
    state = net.optimizer.state_dict()
    return {int(count) for name, count in state.items() if name.endswith(".count")}


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_a_loss_scale_skips_the_same_steps(kind: str, workers: int) -> None:
    mm.set_default_dtype(mm.float32)
    ends = []
    for pool, strategy in ((("inline", 1), "data"), ((kind, workers), Asynchronous(0, servers=2))):
        with current(*pool):
            net = nn.NeuralNetwork([nn.Dense(9), nn.Dense(2)], optimizer="adam", seed=1,
                                   loss="mean_squared_error", precision="mixed-float16")  # fmt: skip
            net.fit(X, 1e3 * Y, batch_size=7, epochs=2, shuffle=False, strategy=strategy)
            scale = net.trainer.loss_scale
            assert scale is not None
            ends.append((net.history.step_losses, [float(v) for v in scale.state().values()]))
            assert applied_steps(net) == {20 - scale.skipped}
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-5)
    assert ends[1][1] == ends[0][1]
    assert 2 < ends[0][1][2] < 15, "some steps were skipped"


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_a_skipped_step_is_not_counted_with_delays(kind: str, workers: int) -> None:
    mm.set_default_dtype(mm.float32)
    with current(kind, workers):
        net = nn.NeuralNetwork([nn.Dense(9), nn.Dense(2)], optimizer="adam", seed=1,
                               loss="mean_squared_error", precision="mixed-float16")  # fmt: skip
        net.fit(X, 1e3 * Y, batch_size=7, epochs=2, strategy=Asynchronous(3, servers=2))
        scale = net.trainer.loss_scale
        assert scale is not None
        assert 0 < scale.skipped < 20
        assert applied_steps(net) == {20 - scale.skipped}


@pytest.mark.parametrize("kind", ["shared", "messages", "hosts"])
@pytest.mark.parametrize(("workers", "staleness"), [(2, 5), (3, 8)])
def test_a_straggler_stops_others_only_at_the_bound(
    kind: str, workers: int, staleness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step of worker 1 lasts until the others have made all the updates they may. They
    begin when it has begun, since enough updates must be left then."""
    begun, reached, waits = threading.Event(), threading.Event(), [True]

    def computing(rank: int, log: Log) -> None:
        if rank != 1:
            begun.wait(30)
        elif waits:
            waits.clear()
            begun.set()
            copied = log.complete[1]
            deadline = time.monotonic() + 30
            while len(log.updates) < copied + staleness and time.monotonic() < deadline:
                time.sleep(0.001)
            if len(log.updates) >= copied + staleness:
                reached.set()
            time.sleep(0.05)  # another update would be one too many
            assert len(log.updates) == copied + staleness

    with current(kind, workers), watched(monkeypatch, computing) as log:
        net, _ = linear()
        history = net.fit(X, Y, batch_size=1, epochs=1, strategy=Asynchronous(staleness))
    assert reached.is_set()
    assert history.delays[0]["max"] in (staleness - 1, staleness)
    assert {rank for _, _, rank in log.updates.values()} == set(range(workers))


def test_asynchronous_training_learns_digits() -> None:
    mm.set_default_dtype(mm.float32)
    digits = mm.data.load("digits")
    images, labels = digits.train_images.reshape(-1, 64), digits.train_labels
    for kind, workers in (("shared", 2), ("shared", 3), ("hosts", 3)):
        with current(kind, workers):
            net = nn.NeuralNetwork([nn.Dense(32, activation="relu"), nn.Dense(10)],
                                   optimizer=mm.optim.GradientDescent(0.1), seed=1)  # fmt: skip
            history = net.fit(images, labels, batch_size=32, epochs=12,
                              strategy=Asynchronous(2 * workers))  # fmt: skip
            assert net.evaluate(images, labels)["accuracy"] > 0.9  # also if all delays are largest
            assert all(0 <= one["max"] <= 2 * workers for one in history.delays)
            assert sum(history.delays[0]["histogram"]) == -(-len(labels) // 32)


@pytest.mark.parametrize("kind", ["shared", "hosts"])
def test_an_error_of_one_worker_ends_the_run_everywhere(kind: str) -> None:
    with current(kind, 3) as pool:
        net = nn.NeuralNetwork([nn.Embedding(5, 4), nn.Flatten(), nn.Dense(2)], seed=1,
                               loss="mean_squared_error", optimizer="sgd")  # fmt: skip
        tokens = np.arange(70).reshape(70, 1) % 5
        net.fit(tokens, Y, batch_size=2, epochs=1, strategy=Asynchronous(3))
        tokens[36] = 9
        start = time.monotonic()
        with pytest.raises(IndexError, match="9 is out of range"):
            net.fit(tokens, Y, batch_size=2, epochs=1, strategy=Asynchronous(3))
        assert time.monotonic() - start < 40
        assert not pool.closed
        again, _ = linear()
        assert len(again.fit(X, Y, batch_size=4, strategy=Asynchronous(3)).step_losses) == 18


def test_more_servers_than_workers_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("magmath.comm.local_group._EAGER_BYTES", 64)  # as for large arrays
    with current("messages", 2):
        layers = [*[nn.Dense(20, activation="relu") for _ in range(4)], nn.Dense(2)]
        net = nn.NeuralNetwork(layers, loss="mean_squared_error", optimizer="sgd", seed=1)
        history = net.fit(X, Y, batch_size=2, epochs=4, strategy=Asynchronous(4, servers=3))
        assert len(history.loss) == 4


def test_an_update_that_fails_on_its_server_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MessageServers._create_server

    def failing(self: MessageServers, server: int, run: Any) -> Any:
        result = made(self, server, run)
        apply = result.apply

        def fail_later(number: int) -> None:
            if number == 5 and server == 1:
                raise ArithmeticError("this update fails")
            apply(number)

        result.apply = fail_later
        return result

    with current("messages", 3) as pool:
        net = network()
        with monkeypatch.context() as patch:
            patch.setattr(MessageServers, "_create_server", failing)
            with pytest.raises(ArithmeticError, match="this update fails"):
                net.fit(X, Y, batch_size=2, epochs=1, strategy=Asynchronous(4))
        assert not pool.closed
        again, _ = linear()
        assert len(again.fit(X, Y, batch_size=4, strategy=Asynchronous(3)).step_losses) == 18


class Centered(nn.Module):
    """Subtracts a running mean, which it then changes by the result: a buffer with a recurrence."""

    def __init__(self) -> None:
        self.mean = nn.Buffer(0.0, (2,))

    def __call__(self, x: mm.Array) -> mm.Array:
        result = x - self.mean
        self.mean.assign(self.mean + 0.1 * mm.mean(mm.stop_gradient(result), axis=0))
        return result


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_buffers_that_a_step_reads_and_changes(kind: str, workers: int) -> None:
    """The step reads copies of them, and each update changes their current values."""
    ends = []
    for pool, strategy in ((("inline", 1), "data"), ((kind, workers), Asynchronous(0, servers=2))):
        with current(*pool):
            net = nn.NeuralNetwork([nn.Dense(4), nn.Dense(2), Centered()], optimizer="momentum",
                                   loss="mean_squared_error", seed=1)  # fmt: skip
            net.fit(X, Y, batch_size=8, epochs=2, strategy=strategy)
            ends.append(net)
    check_equal(ends[1], ends[0])
    with current(kind, workers):
        ends[1].fit(X, Y, batch_size=8, epochs=2, strategy=Asynchronous(5, servers=2))
        step = ends[1].explain()
        assert sum(group.count for group in step.by_operation() if group.name == "gemm") <= 6


@pytest.mark.parametrize("kind", ["shared", "messages"])
def test_a_loss_that_is_not_finite_stops_the_run(kind: str) -> None:
    with current(kind, 2):
        net, _ = linear(mm.optim.GradientDescent(1e200))
        with pytest.raises(NonFiniteLoss, match="the loss became"):
            net.fit(X, Y, batch_size=1, epochs=1, strategy=Asynchronous(2))


class _Counting(mm.train.Callback):
    """Remembers the numbers of completed steps that are reported; sends Ctrl-C with the first one
    if `interrupts`."""

    def __init__(self, interrupts: bool = False) -> None:
        self.interrupts, self.done = interrupts, list[int]()

    def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
        self.done.append(done)
        if self.interrupts:
            self.interrupts = False
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_callbacks_are_told_of_the_last_step(kind: str, workers: int) -> None:
    """The run takes less time than passes between two reports."""
    with current(kind, workers):
        net, counting = linear()[0], _Counting()
        for _ in range(3):
            net.fit(X, Y, batch_size=10, strategy=Asynchronous(4), callbacks=[counting])
            assert counting.done[-1] == 7
            assert counting.done == sorted(set(counting.done))
            counting.done.clear()


@pytest.mark.parametrize(("kind", "workers"), [("shared", 3), ("messages", 2)])
def test_the_steps_of_a_stopped_run_are_counted(
    kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other workers may have begun all of the steps that were left."""
    monkeypatch.setattr(asynchronous_run, "REPORT_SECONDS", 0.0)
    with current(kind, workers):
        for steps in (*range(2, 8), *range(2, 8)):
            rule = mm.optim.Adam(1e-3)
            net, samples = linear(rule)[0], 10 * steps
            with suppress(KeyboardInterrupt):  # not if it came with the last report
                net.fit(
                    X[:samples], Y[:samples], batch_size=10, strategy=Asynchronous(4),
                    callbacks=[_Counting(interrupts=True)],
                )  # fmt: skip
            counts = [int(v) for k, v in rule.state_dict().items() if k.endswith(".count")]
            assert counts == [rule.steps] == [len(net.history.step_losses)]


def test_mistakes() -> None:
    for servers in (0, -1):
        with pytest.raises(MagmathError, match="servers must be an integer of at least 1"):
            Asynchronous(servers=servers)
    with pytest.raises(MagmathError, match="staleness must be an integer of at least 0"):
        Asynchronous(-1)
    with pytest.raises(MagmathError, match=r"delays from 0 to staleness=2, was given \[0, 3\]"):
        Asynchronous(2, schedule=[0, 3])
    with pytest.raises(MagmathError, match="a delay of schedule must be an integer"):
        Asynchronous(2, schedule=[0.5])  # type: ignore[list-item]
    with pytest.raises(MagmathError, match=r"was given \[\]"):
        Asynchronous(2, schedule=[])
    net, _ = linear()
    with current("exact", 2), pytest.raises(MagmathError, match="the pool is deterministic; give"):
        net.fit(X, Y, strategy=Asynchronous())
    with current("inline"), pytest.raises(MagmathError, match="CompiledStep: a call is one step"):
        CompiledStep(lambda x: mm.sum(x), net.module, mm.optim.Adam(), Asynchronous())


def test_parameters_may_be_converted_between_steps() -> None:
    with current("inline", 1):
        module = nn.Dense(2, bias=False).build((1, 6), dtype="float64")
        strategy = Asynchronous(2, schedule=[0, 1, 2])
        step = CompiledStep("mean_squared_error", module, mm.optim.GradientDescent(RATE), strategy)
        step(X[:10], Y[:10])
        module.astype("float32")
        w = module.weight.numpy().astype(np.float64)
        for _ in range(3):
            step(X[:10].astype(np.float32), Y[:10].astype(np.float32))
            assert module.weight.dtype == mm.float32
        assert np.all(module.weight.numpy() != w)
        assert not np.isnan(module.weight.numpy()).any()


def test_delays_of_a_module_are_not_those_of_another() -> None:
    with current("inline", 1):
        strategy = Asynchronous(2, schedule=[2])
        modules = [nn.Dense(2, bias=False).build((1, 6), dtype="float64") for _ in range(2)]
        steps = [
            CompiledStep("mean_squared_error", module, mm.optim.GradientDescent(RATE), strategy)
            for module in modules
        ]
        x, y = X[:10], Y[:10]
        for _ in range(4):
            steps[0](x, y)
        steps[1](x, y)
        w = modules[0].weight.numpy()
        steps[0](x, y)
        expected = w - RATE * gradient(w, 0, 10)
        np.testing.assert_allclose(modules[0].weight.numpy(), expected, rtol=1e-12)


# the simulator ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_steps_are_simulated(kind: str, workers: int) -> None:
    with current(kind, workers):
        net = network("adam")
        net.fit(X, Y, batch_size=16, epochs=1, strategy=Asynchronous(4, servers=3))
        step = net.simulate(times="predicted")
        assert step.form == "predicted"
        assert {w for task in step.timeline.tasks for w in task.workers} == set(range(workers))
        has_messages = any("(message)" in task.name for task in step.timeline.tasks)
        assert has_messages == (kind in ("messages", "hosts"))
        slow = net.simulate(times="predicted", slowdown=dict.fromkeys(range(workers), 4.0))
        assert slow.seconds > step.seconds
        if workers > 1:  # one worker after the other
            alone = net.simulate(strategy=Asynchronous(0, servers=3), times="predicted")
            assert alone.seconds > step.seconds


def test_calls_of_a_step_are_measured_for_the_simulator() -> None:
    with current("shared", 2):
        net = network()
        net.fit(X, Y, batch_size=16, epochs=0, strategy="asynchronous")
        step = net.simulate()
        assert step.seconds > 0
        assert "replay" in step.form or "segments" in step.form


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_equal_networks_have_one_program(kind: str, workers: int) -> None:
    def trained(seed: int) -> tuple[int, float]:
        layers = [nn.Dense(5, "tanh"), nn.Dense(2)]
        net = nn.NeuralNetwork(layers, loss="mean_squared_error", optimizer="adam", seed=seed)
        history = net.fit(X, Y, batch_size=10, epochs=2, strategy="asynchronous")
        return session.engine()._programs.built, history.loss[-1]

    with current(kind, workers) as pool:
        trained(0)
        numbers, losses = zip(*map(trained, (1, 2, 1, 2)), strict=True)
        assert len(set(numbers)) == 1
        exact = pool.workers == 1  # no other worker's update comes between
        np.testing.assert_allclose(losses[:2], losses[2:], rtol=0 if exact else 0.2)
