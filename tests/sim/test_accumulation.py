"""Accumulated gradients: memory of one part, one exchange, and the weights of the whole batch."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import ShapeError
from magmath.layout import even_cuts
from magmath.parallel import (
    Auto,
    CompiledStep,
    DataParallel,
    Hybrid,
    ModelParallel,
    WeightAveraging,
)

DRAW = np.random.default_rng(3)
SAMPLES = 8192
X = DRAW.normal(size=(SAMPLES, 64)).astype(np.float32)
Y = DRAW.integers(0, 5, SAMPLES)
FORMS = {
    "data": DataParallel,
    "sharded": lambda accumulate: DataParallel("sharded", accumulate=accumulate),
    "ring": lambda accumulate: DataParallel("ring", accumulate=accumulate),
    "server": lambda accumulate: DataParallel("parameter-server", accumulate=accumulate),
    "auto": Auto,
    "hybrid": lambda accumulate: Hybrid({"0": "data"}, accumulate=accumulate),
}  # strategies whose parameters every worker has whole, by the number of parts


def of(name: str, parts: int) -> Any:
    return FORMS[name](accumulate=parts)


def explained(strategy: Any) -> Any:
    layers = [nn.Dense(64, activation="relu"), nn.Dense(64, activation="relu"), nn.Dense(5)]
    net = nn.NeuralNetwork(layers, optimizer="sgd", seed=1)
    net.fit(X, Y, batch_size=SAMPLES, epochs=0, strategy=strategy, metrics=[])
    return net.explain()


@pytest.mark.parametrize(
    ("kind", "workers", "name"),
    [
        *[("shared", 3, name) for name in FORMS],
        *[("shared", 2, name) for name in ("data", "auto")],
        *[("inline", 1, name) for name in ("data", "auto")],
    ],
)
def test_parts_need_the_memory_of_one_part_and_one_exchange(
    kind: str, workers: int, name: str
) -> None:
    parameters = 4 * (2 * (64 * 64 + 64) + 64 * 5 + 5)
    with current(kind, workers):
        whole = explained(of(name, 1))
        moved = sum(step.nbytes for step in whole.instructions)
        for parts in (4, 16):
            result = explained(of(name, parts))
            fixed = 6 * parameters + 24 * SAMPLES  # gradients, their sums, messages; random order
            assert result.temporaries <= 1.3 * whole.temporaries / parts + fixed, parts
            total = sum(step.nbytes for step in result.instructions)
            numbers = 8 * SAMPLES + 4 * workers * parts  # of the samples; the sums of the losses
            assert total <= max(moved, 2 * (workers - 1) * parameters) + numbers, parts


def trained(strategy: Any, make: Any, samples: int, batch: int) -> Any:
    net = nn.NeuralNetwork(make(), optimizer=mm.optim.Momentum(0.1), seed=1)
    net.fit(X[:samples], Y[:samples], batch_size=batch, epochs=2, strategy=strategy)
    return net


def plain() -> list[nn.Module]:
    return [nn.Dense(16, activation="tanh"), nn.Dense(5)]


@cache
def of_whole_batches() -> tuple[list[float], dict[str, Any]]:
    """The losses and parameters of one worker."""
    with current("inline"):
        one = trained("data", plain, 50, 20)
        return one.history.step_losses, {name: v.numpy() for name, v in one.parameters.items()}


@given(data=st.data())
@settings(max_examples=8, deadline=None)
def test_parts_train_as_the_whole_batch_does(data: st.DataObject) -> None:
    parts = data.draw(st.integers(2, 9), "parts")
    workers = data.draw(st.integers(1, 4), "workers")
    kind = "inline" if workers == 1 else data.draw(st.sampled_from(["shared", "messages"]))
    forms = [
        *[of(name, parts) for name in FORMS],
        ModelParallel(accumulate=parts), ModelParallel("input", accumulate=parts),
        Hybrid({"0": "output", "1": "input"}, accumulate=parts),
    ]  # fmt: skip
    strategy = data.draw(st.sampled_from(forms), "strategy")
    losses, expected = of_whole_batches()
    with current(kind, workers):
        net = trained(strategy, plain, 50, 20)
        np.testing.assert_allclose(net.history.step_losses, losses, rtol=1e-4)
        for name, v in net.parameters.items():
            np.testing.assert_allclose(v.numpy(), expected[name], rtol=1e-3, atol=1e-5)


def _of_scores(o: mm.Array, y: mm.Array) -> mm.Array:
    """The squares of the distances from the labels in one-hot form."""
    return (o - mm.nn.functional.one_hot(mm.maximum(y, 0), 5)) ** 2


CLASS_WEIGHTS = np.array([1, 2, 0.5, 3, 0.1], np.float32)
LOSSES: dict[str, Any] = {
    "ignored": lambda o, y: nn.cross_entropy(o, y, ignore_index=-1),
    "classes": lambda o, y: nn.cross_entropy(o, mm.maximum(y, 0), weight=CLASS_WEIGHTS),
    "masked": lambda o, y: mm.sum((y >= 0)[:, None] * _of_scores(o, y)) / mm.sum(1.0 * (y >= 0)),
    "truth values": lambda o, y: mm.sum((y >= 0)[:, None] * _of_scores(o, y)) / mm.sum(y >= 0),
    "at least one": lambda o, y: (
        mm.sum((y >= 0)[:, None] * _of_scores(o, y)) / mm.maximum(mm.sum(1.0 * (y >= 0)), 1.0)
    ),
    "mean by mean": lambda o, y: (
        mm.mean(1.0 * (y >= 0) * mm.sum(_of_scores(o, y), axis=1)) / mm.mean(1.0 * (y >= 0))
    ),
    "weights in NumPy": lambda o, y: mm.sum(_of_scores(o, y) * CLASS_WEIGHTS) / (9 * len(o)),
    "one element": lambda o, y: mm.squeeze(
        mm.sum((y >= 0)[:, None] * _of_scores(o, y), keepdims=True)
        / mm.sum(1.0 * (y >= 0)[:, None], keepdims=True)
    ),
    "smoothed": lambda o, y: (
        mm.sum((y >= 0)[:, None] * _of_scores(o, y)) / (mm.sum(1.0 * (y >= 0)) + 0.1 * len(o))
    ),
    "sequences": lambda o, y: nn.cross_entropy(
        mm.repeat(o, 3, axis=0), mm.repeat(y, 3), ignore_index=-1
    ),
    "transposed": lambda o, y: mm.sum(mm.mean(_of_scores(o, y).T, axis=1)),
    "columns": lambda o, y: mm.sum(mm.mean(_of_scores(o, y), axis=0)),
    "mean": lambda o, y: mm.mean(_of_scores(o, y)),
    "sum": lambda o, y: nn.cross_entropy(o, mm.maximum(y, 0), reduction="sum") / 9,
    "plain sum": lambda o, y: 0.1 * mm.sum(_of_scores(o, y)),
    "method": lambda o, y: (_of_scores(o, y) * 0.1).sum(),
    "two sums": lambda o, y: 0.1 * mm.sum(mm.sum(_of_scores(o, y), axis=1)),
    "twice a mean": lambda o, y: 2 * mm.mean(_of_scores(o, y)) / 3,
    "sum by number": lambda o, y: mm.sum(_of_scores(o, y)) / (2 * len(o)),
    "mean and sum": lambda o, y: mm.mean(_of_scores(o, y)) - 0.01 * mm.sum(o**2),
    "squares of sums": lambda o, y: mm.sum(mm.sum(o, axis=1) ** 2 * 0.1) + mm.mean(o),
}
"""Losses that are means, weighted means and sums over the samples."""
PENALIZED = ["ignored", "at least one", "mean", "plain sum", "twice a mean", "mean and sum"]
"""Losses to which a penalty is added."""


@pytest.mark.parametrize(
    ("kind", "workers", "name", "penalty"),
    [
        *[("inline", 1, name, 0.0) for name in LOSSES],
        *[("inline", 1, name, 0.1) for name in PENALIZED],
        *[("shared", 2, name, 0.0) for name in ("masked", "sequences", "transposed", "sum")],
        *[("shared", 2, name, 0.1) for name in PENALIZED[:3]],
    ],
)
def test_losses_of_other_weights_than_samples(
    kind: str, workers: int, name: str, penalty: float
) -> None:
    """Of the first batch, a part has only labels that are ignored; one part has 5 samples, as many
    as there are columns."""
    y = np.where(DRAW.random(40) < 0.4, -1, Y[:40])
    y[:5] = -1
    result = []
    with current(kind, workers):
        for strategy in ("data", DataParallel(accumulate=4), Auto(accumulate=3)):
            net = nn.Sequential(nn.Dense(16, activation="tanh"), nn.Dense(5))

            def loss(o: mm.Array, y: mm.Array) -> mm.Array:
                value = LOSSES[name](o, y)
                if not penalty:
                    return value
                squares = mm.sum(net.layers[0].weight ** 2)  # noqa: B023
                return 0.5 * (value + penalty * squares + squares / (9 * len(o)))

            trainer = mm.train.Trainer(
                net, loss, mm.optim.Momentum(0.01), seed=1, strategy=strategy
            )
            history = trainer.fit(X[:40], y, batch_size=20, epochs=2, shuffle=False)
            result.append([*history.step_losses, *net.layers[0].weight.numpy().ravel()])
    for other in result[1:]:
        np.testing.assert_allclose(other, result[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_means_of_the_batch_are_products_and_those_of_parts_quotients(name: str) -> None:
    """1/16 is exact, 1/5 and 1/6 are not."""
    result = []
    with current("inline"):
        for strategy in ("data", DataParallel(accumulate=3)):
            trainer = mm.train.Trainer(
                nn.Dense(5), LOSSES[name], mm.optim.Momentum(0.01), seed=1, strategy=strategy
            )
            history = trainer.fit(X[:32], Y[:32], batch_size=16, epochs=2, shuffle=False)
            result.append(history.step_losses)
    np.testing.assert_allclose(result[1], result[0], rtol=1e-4, atol=1e-5)


class _Centred(nn.Module):
    """A loss that moves a centre with the outputs, so only the first part reads what the whole
    batch does."""

    def __init__(self, loss: Any) -> None:
        self.centre, self.loss = nn.Buffer(0.0, (5,)), loss

    def __call__(self, o: mm.Array, y: mm.Array) -> mm.Array:
        value: mm.Array = self.loss(o - self.centre, y)
        self.centre.assign(0.9 * self.centre + 0.1 * mm.stop_gradient(mm.mean(o, axis=0)))
        return value


def _weighted_differently(o: mm.Array, y: mm.Array) -> mm.Array:
    """A mean, but for a part of 6 samples its root."""
    value = mm.mean(_of_scores(o, y))
    return mm.sqrt(value) if len(o) == 6 else value


def _mean_of_classes(o: mm.Array, y: mm.Array) -> mm.Array:
    """The mean over the classes of the mean loss of each class."""
    members = mm.nn.functional.one_hot(y, 5)
    losses = mm.sum(-members * mm.log_softmax(o, axis=1), axis=0)
    return mm.mean(losses / (mm.sum(members, axis=0) + 0.1))


INSEPARABLE: dict[str, Any] = {
    "root": lambda: lambda o, y: mm.sqrt(mm.mean(_of_scores(o, y))),
    "classes": lambda: _mean_of_classes,
    "branch": lambda: _weighted_differently,
    "centred weighted mean": lambda: _Centred(lambda o, y: nn.cross_entropy(o, y, ignore_index=-1)),
    "centred mean": lambda: _Centred(lambda o, y: mm.mean(_of_scores(o, y)) + 0.1),
}
"""Functions that return losses which are no sums over the samples, or not for each part."""


@pytest.mark.parametrize("name", INSEPARABLE)
def test_losses_that_are_no_sums_over_the_samples_are_told_of(name: str) -> None:
    """The first loss is then the mean of those of the parts, weighted by their samples. Parts of 20
    samples have 6 or 7."""
    with current("inline"):
        loss = INSEPARABLE[name]()
        net = nn.Sequential(nn.Dense(5)).build((1, 64))
        trainer = mm.train.Trainer(
            net, loss, mm.optim.Momentum(0.01), strategy=DataParallel(accumulate=3)
        )
        outputs, expected = mm.asarray(net(X[:20]).numpy()), 0.0
        for start, stop in pairwise(even_cuts(20, 3)):
            part = float(loss(outputs[start:stop], mm.asarray(Y[start:stop])))
            expected += part * (stop - start) / 20
        if isinstance(loss, _Centred):
            loss.centre.assign(mm.zeros(5))
        with pytest.warns(UserWarning, match="accumulate=3 weights the losses of the parts"):
            history = trainer.fit(X[:20], Y[:20], batch_size=20, epochs=1, shuffle=False)
    np.testing.assert_allclose(history.step_losses, [expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "workers", "last"),
    [*[("inline", 1, last) for last in range(2, 8)], *[("shared", 2, last) for last in (2, 5)]],
)
def test_small_last_batches_have_fewer_parts(kind: str, workers: int, last: int) -> None:
    """Batch normalization needs two samples, so the parts of a batch have two or more."""

    def make() -> list[nn.Module]:
        return [nn.Dense(8), nn.BatchNorm(), nn.Dense(5)]

    with current(kind, workers):
        net = trained(DataParallel(accumulate=3), make, 24 + last, 24)
        assert np.isfinite(net.history.step_losses).all()


@pytest.mark.parametrize("strategy", [DataParallel, Auto])
def test_dynamic_loss_scales_are_those_of_the_whole_batch(strategy: Any) -> None:
    """A part's loss is weighted before it is scaled, so its cotangents overflow where those of the
    batch do. Gradients of weights are small here: their sums would overflow later, in parts."""
    result = {}
    for parts in (1, 4):
        with current("shared", 2):
            scale = mm.optim.LossScale(2.0**24, growth_interval=2)
            layers = [nn.Dense(16, activation="relu", bias=False), nn.Dense(5, bias=False)]
            trainer = mm.train.Trainer(
                nn.Sequential(*layers), optimizer=mm.optim.GradientDescent(0.1), seed=1,
                precision="mixed-float16", loss_scale=scale, strategy=strategy(accumulate=parts),
            )  # fmt: skip
            history = trainer.fit(X[:128] * 0.01, Y[:128], batch_size=32, epochs=3, shuffle=False)
            state = {name: float(v) for name, v in scale.state().items()}
            result[parts] = (state, history.step_losses)
    assert result[1][0] == result[4][0]
    assert result[1][0]["skipped"] > 0
    np.testing.assert_allclose(result[1][1], result[4][1], rtol=2e-2)


# marked functions, random numbers and losses that call the module themselves
# ----------------------------------------------------------------------------------


@mm.custom_gradient
def _clipped(x: mm.Array) -> Any:
    return x, lambda g: mm.clip(g, -0.002, 0.002)


@mm.custom_gradient
def _scaled_by(x: mm.Array, factor: mm.Array) -> Any:
    """Return x, whose gradient is multiplied by a function of x and of another array."""
    y = mm.exp(-(x**2))
    return x, lambda g: (g * y * factor, None)


@mm.custom_gradient
def _normalized(x: mm.Array) -> Any:
    """Return x, whose gradient has the norm 1."""
    return x, lambda g: g / mm.sqrt(mm.sum(g**2))


def _running(x: mm.Array) -> mm.Array:
    """Return sums over the columns that a loop computes."""
    return mm.fori_loop(0, 5000, lambda i, total: total + x / 5000, mm.zeros_like(x))


MARKED: dict[str, Any] = {
    "clipped": lambda net, x, y: mm.mean(_clipped(_of_scores(net(x), y))),
    "clipped sum": lambda net, x, y: mm.sum(_clipped(net(x)) ** 2) * 0.1,
    "scaled": lambda net, x, y: mm.mean(_of_scores(_scaled_by(net(x), mm.linspace(0.5, 2, 5)), y)),
    "recomputed": lambda net, x, y: mm.mean(mm.remat(_of_scores)(net(x), y)),
    "recomputed module": lambda net, x, y: mm.mean(_of_scores(mm.remat(net)(x), y)),
    "branches": lambda net, x, y: mm.mean(
        mm.cond(
            mm.sum(net.layers[0].weight) > 0, lambda o: _of_scores(o, y), lambda o: o**2, net(x)
        )
    ),
    "gradient penalty": lambda net, x, y: (
        mm.mean(_of_scores(net(x), y)) + mm.mean(mm.grad(mm.sum(mm.tanh(net(x)[:, 0])), x) ** 2)
    ),
    "random numbers": lambda net, x, y: mm.mean(
        _of_scores(net(x + 1e-9 * mm.random.normal(size=x.shape)), y)
        * (1 + 1e-9 * mm.random.uniform(size=(len(x), 1)))
    ),
    "ignored": lambda net, x, y: nn.cross_entropy(net(x), y, ignore_index=-1),
    "inside": lambda net, x, y: nn.cross_entropy(
        net.layers[-1](mm.tanh(net.layers[0](x))), y, ignore_index=-1
    ),
}
"""Losses of the module and a batch: means, sums and weighted means of functions of samples."""


def _steps(net: nn.Module, loss: Any, strategy: Any) -> list[float]:
    """Return the losses of two steps, and the parameters after them."""
    y = np.where(np.arange(14) % 3, Y[:14], -1)
    y[:7] = -1
    step = CompiledStep(loss, net, mm.optim.GradientDescent(0.1), strategy)
    losses = [float(step(X[:14], y)) for _ in range(2)]
    return [*losses, *np.concatenate([v.numpy().ravel() for v in net.parameters()])]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", MARKED)
def test_losses_that_call_the_module(name: str) -> None:
    """A part has only labels that are ignored. Dropout keeps all elements."""
    result = []
    with current("inline"):
        for parts in (1, 2, 3):
            mm.random.seed(1)
            net = nn.Sequential(nn.Dense(6), nn.Dropout(1e-9), nn.Dense(5)).build((1, 64))

            def loss(x: mm.Array, y: mm.Array, net: nn.Module = net) -> mm.Array:
                return MARKED[name](net, x, y)

            result.append(_steps(net, loss, DataParallel(accumulate=parts)))
    assert np.ptp(result[0][2:]) > 0
    for other in result[1:]:
        np.testing.assert_allclose(other, result[0], rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["name", "function", "fit"])
def test_layers_with_statistics_and_random_numbers_of_parts(kind: str) -> None:
    """What layers return counts as a function of samples, in each way to train."""
    with current("inline"):
        layers = [nn.Dense(6), nn.BatchNorm(), nn.ReLU(), nn.Dropout(0.5, seed=3), nn.Dense(5)]
        net, strategy = nn.Sequential(*layers).build((1, 64)), DataParallel(accumulate=3)
        if kind == "fit":
            mm.train.Trainer(net, strategy=strategy).fit(X[:14], Y[:14], batch_size=14)
        elif kind == "name":
            step = CompiledStep("cross_entropy", net, mm.optim.GradientDescent(0.1), strategy)
            assert np.isfinite(float(step(X[:14], Y[:14])))
        else:
            assert np.isfinite(_steps(net, lambda x, y: mm.mean(net(x) ** 2), strategy)).all()


@pytest.mark.parametrize(
    "loss",
    [
        lambda o: mm.mean(_normalized(o) ** 2),
        lambda o: mm.mean(_running(o) ** 2),
        lambda o: mm.mean((o - mm.mean(o, axis=0)) ** 2),
    ],
    ids=["gradient rule", "loop", "mean of the batch"],
)
def test_functions_of_the_whole_batch_are_told_of(loss: Any) -> None:
    with current("inline"):
        net = nn.Sequential(nn.Dense(6), nn.Dense(5)).build((1, 64))
        with pytest.warns(UserWarning, match="DataParallel: accumulate=2 weights the losses"):
            _steps(net, lambda x, y: loss(net(x)), DataParallel(accumulate=2))


class _WithStatistic(nn.Module):
    """Returns outputs, and a mean over the batch."""

    def __init__(self) -> None:
        self.dense = nn.Dense(5)

    def __call__(self, x: mm.Array) -> tuple[mm.Array, mm.Array]:
        y = self.dense(x)
        return y, mm.mean(y, axis=0)


def test_outputs_that_are_means_over_the_batch_are_no_functions_of_samples() -> None:
    with current("inline"):
        trainer = mm.train.Trainer(
            _WithStatistic(), lambda o, y: mm.mean((o[0] - o[1]) ** 2), metrics=[],
            strategy=DataParallel(accumulate=2),
        )  # fmt: skip
        with pytest.warns(UserWarning, match="accumulate=2 weights the losses of the parts"):
            trainer.fit(X[:14], Y[:14], batch_size=14)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize(
    "batch",
    [(), (0.5,), (0.5, X[:8]), (X[:8], np.ones(3, np.float32))],
    ids=["none", "number", "number first", "other length"],
)
def test_batches_of_arrays_that_do_not_number_samples(batch: Any, accumulate: int) -> None:
    """A step on the whole batch takes any arrays; parts need the samples."""

    def loss(*arrays: mm.Array) -> mm.Array:
        outputs = net(mm.ones((6, 64))) + sum([mm.mean(x) for x in arrays])
        return mm.mean(outputs**2)

    for kind, workers in (("inline", 1), ("shared", 2)):
        with current(kind, workers):
            net = nn.Dense(1).build((1, 64))
            step = CompiledStep(
                loss, net, mm.optim.GradientDescent(0.01), DataParallel(accumulate=accumulate)
            )
            if accumulate == 1:
                first = float(step(*batch))
                assert float(step(*batch)) < first
            else:
                with pytest.raises(ShapeError, match="accumulate=2 divides all arrays of a batch"):
                    step(*batch)


def test_replicas_take_a_step_without_a_batch() -> None:
    with current("inline"):
        net = nn.Dense(1).build((1, 64))
        step = CompiledStep(
            lambda: mm.mean(net(mm.ones((6, 64))) ** 2), net, mm.optim.GradientDescent(0.01),
            WeightAveraging(2),
        )  # fmt: skip
        first = float(step())
        assert float(step()) < first


class _Columns(nn.Module):
    """Returns outputs (5, samples), the sizes (3 · samples,) of blocks, and two means over the
    batch."""

    def __init__(self) -> None:
        self.dense = nn.Dense(5)

    def __call__(self, x: mm.Array) -> tuple[mm.Array, ...]:
        y = self.dense(x)
        return y.T, mm.sum(mm.reshape(x[:, :63], (-1, 21)), axis=1), mm.mean(y, axis=0), mm.mean(y)


def _columns(o: Any, y: mm.Array) -> mm.Array:
    return mm.mean((o[0] - mm.arange(5)[:, None] * y) ** 2)


def _blocks(o: Any, y: mm.Array) -> mm.Array:
    return mm.mean(o[1] * mm.repeat(y, 3))


def _statistic(o: Any, y: mm.Array) -> mm.Array:
    return mm.mean((o[0] - o[2][:, None]) ** 2)


def _number(o: Any, y: mm.Array) -> mm.Array:
    value: mm.Array = o[3]
    return value


@pytest.mark.parametrize(
    "strategy", [DataParallel(accumulate=3), Auto(accumulate=2), WeightAveraging(2)], ids=repr
)
def test_outputs_of_parts_are_joined_along_the_samples(strategy: Any) -> None:
    """Means over equal parts have the mean of the batch as their mean."""
    metrics, records = [_columns, _blocks, _statistic, _number], []
    with current("inline"):
        for used in ("data", strategy):
            trainer = mm.train.Trainer(
                _Columns(), lambda o, y: mm.mean(o[0] ** 2), metrics=metrics, seed=1, strategy=used
            )
            history = trainer.fit(X[:12], Y[:12], batch_size=12, epochs=1, shuffle=False)
            records.append(history.records[0].metrics)
    for name in ("_columns", "_blocks", "_statistic", "_number"):
        np.testing.assert_allclose(records[1][name], records[0][name], rtol=1e-4, err_msg=name)


class _Mean(nn.Module):
    """Returns the mean of its outputs, 0-d."""

    def __init__(self) -> None:
        self.dense = nn.Dense(1)

    def __call__(self, x: mm.Array) -> mm.Array:
        return mm.mean(self.dense(x))


def _output(o: mm.Array, y: mm.Array) -> mm.Array:
    return o


def test_outputs_of_parts_that_are_numbers_have_their_weighted_mean() -> None:
    """Parts of 4, 3 and 3 samples."""
    result = []
    for parts in (1, 3):
        with current("inline"):
            trainer = mm.train.Trainer(
                _Mean(), lambda o, y: o + 0 * mm.mean(y), mm.optim.GradientDescent(0.0), seed=1,
                metrics=[_output], strategy=DataParallel(accumulate=parts),
            )  # fmt: skip
            history = trainer.fit(X[:10], Y[:10], batch_size=10, epochs=1, shuffle=False)
            result.append(history.records[0].metrics["_output"])
    np.testing.assert_allclose(result[1], result[0], rtol=1e-5)
