"""Gradient averaging: every exchange equals training by one worker, and sends the planned bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import MagmathError, OptionError, ShapeError
from magmath.kernels.allreduce import _tree_neighbours
from magmath.layout import even_cuts
from magmath.ops.summands import sum_parts, summands
from magmath.parallel import (
    CompiledStep,
    DataParallel,
    GradientAveraging,
    Hybrid,
    ModelParallel,
    server_times,
)
from magmath.parallel.gradient_messages import OneBit
from magmath.parallel.strategy_table import as_strategy

DRAW = np.random.default_rng(5)
X = DRAW.normal(size=(70, 12))
Y = DRAW.integers(0, 5, 70)
POOLS = [("shared", 2), ("messages", 3), ("hosts", 4)]
EXCHANGES = ["allreduce", "ring", "tree", "sharded", "parameter-server"]


@pytest.fixture(autouse=True)
def _in_float64() -> Any:
    mm.set_default_dtype(mm.float64)
    yield
    mm.set_default_dtype(mm.float32)


def layers() -> list[nn.Module]:
    return [nn.Dense(16), nn.BatchNorm(), nn.ReLU(), nn.Dropout(0.3, seed=3), nn.Dense(5)]


def trained(strategy: Any, rule: str = "momentum", batch: int = 16, make: Any = layers) -> Any:
    """A network after training; no batch divides evenly over 3 or 4 workers at the end."""
    net = nn.NeuralNetwork(make(), optimizer=rule, seed=1)
    net.fit(X, Y, batch_size=batch, epochs=2, strategy=strategy)
    return net


def state(net: nn.NeuralNetwork) -> dict[str, np.ndarray]:
    return {name: v.numpy() for name, v in net.module.state_dict().items()}


def check(net: nn.NeuralNetwork, expected: nn.NeuralNetwork, limit: float) -> None:
    np.testing.assert_allclose(
        net.history.step_losses, expected.history.step_losses, rtol=limit, atol=limit
    )
    for name, value in state(expected).items():
        np.testing.assert_allclose(state(net)[name], value, rtol=limit, atol=limit, err_msg=name)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """The same training by one worker, by the rule."""
    mm.set_default_dtype(mm.float64)
    with current("inline"):
        return {rule: trained("data", rule) for rule in ("momentum", "adam")}


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_equals_one_worker(kind: str, workers: int, exchange: str, alone: dict[str, Any]) -> None:
    """With running statistics, dropout, and shards of unequal sizes, which weigh by samples."""
    rule = "adam" if workers == 3 else "momentum"
    with current(kind, workers):
        check(trained(exchange, rule), alone[rule], 1e-8)


@pytest.mark.parametrize(
    ("kind", "workers", "messages"),
    [
        ("shared", 2, "float16"),
        ("shared", 2, "bfloat16"),
        ("messages", 3, "float32"),
        ("messages", 3, "bfloat16"),
    ],
)
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_shorter_messages_are_close(
    kind: str, workers: int, exchange: str, messages: str, alone: dict[str, Any]
) -> None:
    with current(kind, workers):
        net = trained(DataParallel(exchange, messages=messages))
        limit = {"float32": 1e-5, "float16": 0.003, "bfloat16": 0.02}[messages]
        check(net, alone["momentum"], limit)
        assert np.abs(state(net)["0.weight"] - state(alone["momentum"])["0.weight"]).max() > 0


def plain() -> list[nn.Module]:
    return [nn.Dense(16, activation="tanh"), nn.Dense(5)]


@pytest.mark.parametrize("count", [3, 16, 40])
def test_accumulation_equals_whole_batches(count: int) -> None:
    with current("inline"):
        expected = trained("data", make=plain)
    for kind, workers in (("inline", 1), ("messages", 2)):
        with current(kind, workers):
            check(trained(DataParallel(accumulate=count), make=plain), expected, 1e-9)


def moved(net: nn.NeuralNetwork, operation: str) -> int:
    return sum(step.nbytes for step in net.explain().instructions if step.operation == operation)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_bytes_of_exchanges(workers: int) -> None:
    """Ring and tree: 2(P - 1) n bytes, of which every worker of a ring sends 2(P - 1)/P n."""
    with current("messages", workers):
        net = trained("ring", make=plain)
        size = sum(v.size for v in net.parameters.values())
        chosen = [s for s in net.explain().instructions if s.operation == "sum_parts"]
        assert sum(s.nbytes for s in chosen) == 2 * (workers - 1) * size * 8
        assert sum(s.messages for s in chosen) == 4 * 2 * (workers - 1) * workers
        assert moved(trained("tree", make=plain), "sum_parts") == 2 * (workers - 1) * size * 8
        half = trained(DataParallel("ring", messages="float16"), make=plain)
        assert moved(half, "sum_parts") == 2 * (workers - 1) * size * 2
        server = trained("parameter-server", make=plain)
        assert moved(server, "gather") == (workers - 1) * size * 8
        assert moved(server, "broadcast") == (workers - 1) * size * 8


def test_half_of_the_bytes_and_an_eighth_of_an_eighth() -> None:
    """Gradients of float64 in float16, and in one bit with two numbers for each parameter."""
    with current("messages", 4):
        whole, single, half, bits = [
            trained(DataParallel(messages=name), make=plain).explain().total.nbytes
            for name in (None, "float32", "float16", "1-bit")
        ]
        assert single < 0.6 * whole
        assert half < 0.3 * whole
        assert bits < 0.25 * whole


def test_sharded_states_take_less_memory() -> None:
    with current("messages", 4):
        whole = trained("data", "adam", make=plain)
        sharded = trained("sharded", "adam", make=plain)
        assert sharded.explain().memory < 0.8 * whole.explain().memory
        entry, *_ = sharded.optimizer.variable_states.of(sharded.module.trainable())
        first = entry.states["first"].layout
        assert first.local_size(0) * 4 == first.size


# one bit ------------------------------------------------------------------------------------------


def one_bit_model(w: np.ndarray, workers: int, batch: int, rate: float) -> np.ndarray:
    """Linear regression with one-bit gradients and error feedback, each worker with its shard."""
    residual = np.zeros((workers, w.size))
    for start in range(0, len(X), batch):
        x, y = X[start : start + batch], Y[start : start + batch, np.newaxis]
        cuts = even_cuts(len(x), workers)
        total = np.zeros(w.size)
        for i in range(workers):
            part, target = x[cuts[i] : cuts[i + 1]], y[cuts[i] : cuts[i + 1]]
            g = residual[i] + (2 * part.T @ (part @ w - target) / len(x)).ravel()
            positive = g >= 0
            q = np.where(
                positive,
                g[positive].sum() / max(positive.sum(), 1),
                g[~positive].sum() / max((~positive).sum(), 1),
            )
            residual[i] = g - q
            total += q
        w = w - rate * total.reshape(w.shape)
    return w


@pytest.mark.parametrize("exchange", ["allreduce", "sharded"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 4)])
def test_one_bit_with_error_feedback(kind: str, workers: int, exchange: str) -> None:
    with current(kind, workers):
        layer = nn.Dense(1, bias=False)
        net = nn.NeuralNetwork([layer], loss="mean_squared_error",
                               optimizer=mm.optim.GradientDescent(0.05), seed=1)  # fmt: skip
        net.build((1, 12))
        expected = one_bit_model(layer.weight.numpy(), workers, 28, 0.05)
        strategy = DataParallel(exchange, messages="1-bit")
        net.fit(X, Y[:, np.newaxis].astype(float), batch_size=28, shuffle=False, strategy=strategy)
        np.testing.assert_allclose(layer.weight.numpy(), expected, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_the_bits_of_many_elements_stand_for_their_means(
    kind: str, workers: int, dtype: str
) -> None:
    """Half types hold neither the count of the elements nor their sum."""
    drawn = np.random.default_rng(0).uniform(-1, 50, (2, 70_000))
    with current(kind, workers):
        parts = mm.asarray(drawn).astype(getattr(mm, dtype))
        rounded = parts.astype(mm.float64).numpy()
        bits = OneBit.of(parts)
        actual = bits.values(drawn.shape[1])
        assert actual.dtype is parts.dtype
        expected = np.stack([np.where(x >= 0, x[x >= 0].mean(), x[x < 0].mean()) for x in rounded])
        limit = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "float64": 1e-12}[dtype]
        np.testing.assert_allclose(actual.astype(mm.float64).numpy(), expected, rtol=limit)


# algorithms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("kind", ["shared", "messages"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (100, 33)])
def test_sums_by_messages(kind: str, shape: Sequence[int], algorithm: str) -> None:
    for workers in (1, 2, 3, 4, 7):
        with current(kind, workers):
            values = np.random.default_rng(workers).normal(size=(workers, *shape))
            x = mm.asarray(values)
            for dtype, limit in ((mm.float64, 1e-13), (mm.float32, 1e-5), (mm.float16, 0.02)):
                result = mm.Array(sum_parts(x.node, algorithm, dtype)).numpy()
                np.testing.assert_allclose(result, values.sum(0), rtol=limit, atol=limit)
            parts = mm.Array(summands(x.node, workers)).numpy()
            np.testing.assert_allclose(parts.sum(0), values, rtol=1e-13)


@pytest.mark.parametrize("size", range(1, 20))
def test_every_worker_has_one_parent(size: int) -> None:
    families = [_tree_neighbours(rank, size) for rank in range(size)]
    for rank, (parent, _) in enumerate(families):
        assert (parent is None) == (rank == 0)
        assert parent is None or families[parent][1].count(rank) == 1
    assert sum(len(children) for _, children in families) == size - 1


# loops and layers
# -----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["ring", "sharded", "auto", {"0": "output"}], ids=str)
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 4)])
def test_a_loop_of_ones_own(kind: str, workers: int, strategy: Any) -> None:
    ends = []
    for pool, name in ((("inline", 1), "data"), ((kind, workers), strategy)):
        with current(*pool):
            mm.random.seed(3)
            model = nn.Sequential(*layers()).build((16, 12))

            def loss(x: mm.Array, y: mm.Array, model: Any = model) -> mm.Array:
                return nn.cross_entropy(model(x), y)

            step = CompiledStep(loss, model, mm.optim.Adam(0.01), name)
            losses = [float(step(X[i : i + 14], Y[i : i + 14])) for i in range(0, 70, 14)]
            step.collect()
            assert "sum" in str(step.explain())
            ends.append((losses, {k: v.numpy() for k, v in model.state_dict().items()}))
    np.testing.assert_allclose(ends[1][0], ends[0][0], rtol=1e-9)
    for name, value in ends[0][1].items():
        np.testing.assert_allclose(ends[1][1][name], value, rtol=1e-7, atol=1e-9)


def test_explanation_by_layer() -> None:
    with current("messages", 4):
        net = nn.NeuralNetwork(plain(), seed=1)
        with pytest.raises(MagmathError, match="explain: call fit first"):
            net.explain(strategy="ring")
        net.fit(X, Y, batch_size=16, epochs=0, strategy="data")
        layout = net.parameters["0.weight"].layout
        explanation = net.explain(strategy="ring").by_layer()
        sizes = {"0": 12 * 16 + 16, "1": 16 * 5 + 5}
        for group in explanation:
            if group.name in sizes:
                least = 2 * 3 * sizes[group.name] * 8
                assert least <= group.nbytes <= least + 1000
        assert {group.name for group in explanation} == {"0", "1", "(no layer)"}
        assert net.parameters["0.weight"].layout == layout
        times = server_times(net.explain(strategy="parameter-server"))
        assert all(times[name] > 0 for name in ("gather", "average", "broadcast"))
        assert "by layer" in str(net.explain())


def test_options_of_layers() -> None:
    with current("messages", 4):
        net = trained(Hybrid({"0": "output", "*": "data"}))
        assert net.history.strategy == "0: output, 1: data, 4: data"
        assert net.parameters["0.weight"].layout.local_size(0) == 12 * 4
        assert net.parameters["4.weight"].layout.is_replicated
        assert repr(Hybrid({"0": "output"})) == "Hybrid(layers={'0': 'output'})"


@pytest.mark.parametrize("pattern", ["0", "0.*", "0.0.0", "*.0"])
def test_a_pattern_names_layers_or_a_module_that_contains_them(pattern: str) -> None:
    with current("shared", 2):
        inner = nn.Sequential(nn.Sequential(nn.Dense(8)), nn.Tanh())
        layers = [inner, nn.Dense(5)]
        net = nn.NeuralNetwork(layers, optimizer="momentum", seed=1)
        net.fit(X, Y, epochs=0, strategy={pattern: "output"})
        assert net.parameters["1.weight"].layout.is_replicated
        divided = [v for name, v in net.parameters.items() if name.startswith("0.")]
        assert len(divided) == 2
        assert not any(v.layout.is_replicated for v in divided)


def test_mistakes() -> None:
    with current("messages", 4):
        with pytest.raises(
            MagmathError, match=r"'fast' is not known; there are auto, .*ring, tree"
        ):
            trained("fast")
        with pytest.raises(MagmathError, match="no layer with parameters has the path 'head'"):
            trained({"head": "output"})
        with pytest.raises(
            MagmathError, match="option 'column' of '0' is not known; there are data"
        ):
            trained({"0": "column"})
        with pytest.raises(MagmathError, match="no layer has more than 3; use fewer workers"):
            nn.NeuralNetwork([nn.Dense(3)], loss="mean_squared_error").fit(
                X, X[:, :3], strategy="model"
            )
        with pytest.raises(MagmathError, match="layer '0' has 3 outputs for 4 workers"):
            trained({"0": "output"}, make=lambda: [nn.Dense(3), nn.Dense(5)])
        with pytest.raises(MagmathError, match="layer '1' has 3 inputs for 4 workers"):
            trained({"1": "input"}, make=lambda: [nn.Dense(3), nn.Dense(5)])
        with pytest.raises(MagmathError, match=r"mm.parallel.ModelParallel\(…\), with parentheses"):
            trained(ModelParallel)
    with pytest.raises(MagmathError, match="a dictionary from layers to options"):
        Hybrid("model")  # type: ignore[arg-type]
    for empty in (Hybrid, as_strategy):
        with pytest.raises(OptionError, match="a dictionary from layers to options, not empty"):
            empty({})  # type: ignore[operator]
    with pytest.raises(MagmathError, match="with texts as keys"):
        Hybrid({0: "output"})  # type: ignore[dict-item]
    with pytest.raises(
        MagmathError, match="exchange='butterfly' is not known; there are allreduce"
    ):
        DataParallel("butterfly")
    with pytest.raises(MagmathError, match="messages='int8' is not known; there are None, float32"):
        DataParallel(messages="int8")
    with pytest.raises(MagmathError, match="which one bit cannot express"):
        DataParallel("ring", messages="1-bit")
    with pytest.raises(MagmathError, match="accumulate"):
        DataParallel(accumulate=0)


class Returns(GradientAveraging):
    """Exchanges gradients by a given function, with the parameters on every worker."""

    def __init__(self, function: Any, accumulate: int = 1) -> None:
        super().__init__(accumulate)
        self.function = function

    def exchange(self, training: Any, gradients: Sequence[mm.Array]) -> Any:
        return self.function(gradients)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda result: result[1:], MagmathError, r"each of 2 parameters, has returned 1"),
        (lambda result: [x[0] for x in result], ShapeError, r"shape \(12, 5\) here, has .* \(5,\)"),
        (lambda result: [None for _ in result], TypeError, "Returns.exchange"),
    ],
)
def test_an_exchange_returns_a_gradient_for_each_parameter(
    function: Any, error: Any, message: str
) -> None:
    with current("shared", 2):
        with pytest.raises(error, match=message):
            trained(Returns(function), make=lambda: [nn.Dense(5)])
        trained(Returns(list), make=lambda: [nn.Dense(5)])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_strategy_defines_its_exchange_alone(accumulate: int) -> None:
    signs, expected = Returns(lambda gradients: [mm.sign(x) for x in gradients], accumulate), []
    assert signs.label == ("Returns()" if accumulate == 1 else "Returns(accumulate=2)")
    for workers in (0, 2):
        with current("inline" if not workers else "shared", max(workers, 1)):
            net = trained(signs, make=lambda: [nn.Dense(5)])
            expected.append(net.module.parameters()[0].numpy())
    np.testing.assert_allclose(expected[1], expected[0], rtol=1e-6)
