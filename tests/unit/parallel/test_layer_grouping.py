"""The layers of a network: their products, their roles and their parameters."""

from dataclasses import replace
from itertools import combinations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import magmath as mm
from magmath.errors import OptionError, ShapeError
from magmath.parallel.planner.layer_grouping import layer_graph


@pytest.fixture(autouse=True)
def _pool():
    with mm.init(workers=0):
        yield


CONVOLUTIONS = {1: mm.nn.Conv1d, 2: mm.nn.Conv2d, 3: mm.nn.Conv3d}


@settings(deadline=None, max_examples=25)
@given(
    rank=st.sampled_from([*CONVOLUTIONS]),
    groups=st.integers(1, 4),
    inputs=st.integers(1, 3),
    outputs=st.integers(1, 3),
    size=st.integers(3, 9),
    scaled=st.booleans(),
)
def test_convolutions_are_products_with_channels_and_space(
    rank, groups, inputs, outputs, size, scaled
):
    convolution = CONVOLUTIONS[rank](outputs * groups, 3, padding=1, groups=groups, bias=False)
    network = (
        mm.nn.Sequential(mm.nn.Lambda(lambda x: x * 2.0), convolution) if scaled else convolution
    )
    graph = layer_graph(network, (5, inputs * groups, *[size] * rank))
    layer = next(x for x in graph.layers if x.has_product)
    assert (layer.rows, layer.columns) == (outputs * groups, 5 * size**rank)
    assert layer.flops == 2.0 * layer.rows * layer.columns * layer.depth
    expected = {"batch": 5, "space": size}
    if groups == 1:
        expected |= {"channel": outputs, "input": inputs}
    elif inputs == 1:
        expected |= {"channel": outputs * groups}
    assert {role: n for role, n in layer.extents.items() if n > 1} == {
        role: n for role, n in expected.items() if n > 1
    }


@pytest.mark.parametrize("shape", [(6, 8), (6, 5, 8), (6, 5, 4, 8)])
@pytest.mark.parametrize("outputs", [(), (3,), (3, 7)])
def test_outputs_of_products_are_those_of_the_parameter(shape, outputs):
    class Product(mm.nn.Module):
        def __init__(self):
            self.weight = mm.nn.Parameter(mm.zeros((8, *outputs)))

        def __call__(self, x):
            return mm.tensordot(x, self.weight, axes=1)

    (layer,) = [x for x in layer_graph(Product(), shape).layers if x.has_product]
    assert (layer.rows, layer.columns) == (np.prod(outputs, dtype=int), np.prod(shape[:-1]))
    assert layer.flops == 2.0 * layer.rows * layer.columns * 8
    assert layer.extents.get("channel", 1) in (*outputs, np.prod(outputs, dtype=int))


def test_the_length_of_signals_is_no_channel():
    with pytest.raises(OptionError, match="outputs, but no layer has more than 8"):
        mm.parallel.plan(
            mm.nn.Conv1d(8, 3, padding=1), (64, 4, 1000), "ethernet-10g", 16, strategy="model"
        )
    layers = layer_graph(mm.nn.Conv1d(8, 3, padding=1), (64, 4, 1000)).layers
    assert dict(layers[1].extents) == {"batch": 64, "channel": 8, "space": 1000, "input": 4}


def test_the_outputs_of_an_embedding_are_its_features():
    network = mm.nn.Sequential(mm.nn.Embedding(100, 12), mm.nn.Dense(7))
    layers = layer_graph(network, (4, 9), "int64").layers
    embedded = next(x for x in layers if x.kind == "Embedding")
    assert embedded.extents["channel"] == 12


# parameters ---------------------------------------------------------------------------------------


class Repeated(mm.nn.Module):
    """One dense layer, applied several times."""

    def __init__(self, uses):
        self.dense, self.uses = mm.nn.Dense(64), uses

    def __call__(self, x):
        for _ in range(self.uses):
            x = mm.tanh(self.dense(x))
        return x


@pytest.mark.parametrize("uses", [1, 2, 5])
def test_shared_parameters_count_once(uses):
    graph = layer_graph(Repeated(uses), (8, 64))
    products = [layer for layer in graph.layers if layer.has_product]
    assert graph.parameter_bytes == 4 * (64 * 64 + 64)
    assert len(products) == uses
    assert all(layer.trains_weights and layer.weights == 4 * 64 * 64 for layer in products)
    plan = mm.parallel.plan(Repeated(uses), (4096, 64), "ethernet-10g", 4, strategy="data")
    gradients = [layer.gradient for layer in plan.layers]
    assert sum(seconds > 0 for seconds in gradients) == 1


def test_the_parameters_of_recurrent_layers_count_once():
    network = mm.nn.LSTM(32)
    graph = layer_graph(network, (8, 20, 16))
    network.build((8, 20, 16))
    assert graph.parameter_bytes == sum(x.nbytes for x in network.parameters())


@pytest.mark.parametrize("network", ["lenet5", "resnet18"])
def test_frozen_parameters_have_no_gradients(network):
    architecture = mm.nn.zoo.NETWORKS[network]
    shape = (256, *architecture.image)
    module = architecture()
    module.build((1, *architecture.image))
    trained = mm.parallel.plan(module, shape, "k80-fdr", 8, strategy="data")
    module.freeze()
    frozen = mm.parallel.plan(module, shape, "k80-fdr", 8, strategy="data")
    assert not any(layer.gradient for layer in frozen.layers)
    assert frozen.seconds < 0.5 * trained.seconds
    assert frozen.graph.parameter_bytes == trained.graph.parameter_bytes
    assert frozen.memory == frozen.graph.parameter_bytes  # no gradients, states and kept values
    assert trained.memory > 3 * trained.graph.parameter_bytes
    assert not any(layer.trainable for layer in frozen.graph.layers)


def test_only_layers_above_a_trained_one_pass_gradients_back():
    module = mm.nn.Sequential(*[mm.nn.Dense(16) for _ in range(4)])
    module.build((1, 8))
    module.freeze()
    module.unfreeze("1")
    layers = layer_graph(module, (64, 8)).layers[1:5]
    assert [layer.trainable for layer in layers] == [False, True, True, True]
    assert [layer.trains_weights for layer in layers] == [False, True, False, False]
    assert [layer.has_input_gradient for layer in layers] == [False, False, True, True]


def test_layers_below_the_first_trained_one_keep_what_it_reads():
    module = mm.nn.Sequential(*[mm.nn.Dense(16) for _ in range(4)])
    module.build((1, 8))
    module.freeze()
    module.unfreeze("2")
    layers = layer_graph(module, (64, 8)).layers
    assert [layer.kept for layer in layers[:3]] == [0, 0, 4 * 64 * 16]
    assert layers[3].kept > 0


def test_nothing_below_a_stopped_gradient_is_differentiated():
    class Stopped(mm.nn.Module):
        def __init__(self):
            self.encoder, self.head = mm.nn.Dense(16), mm.nn.Dense(4)

        def __call__(self, x):
            return self.head(mm.stop_gradient(mm.relu(self.encoder(x))))

    plan = mm.parallel.plan(Stopped(), (64, 8), "dgx-h200", 4, strategy="data")
    below, encoder, head, _ = plan.graph.layers
    assert [encoder.trainable, encoder.trains_weights, head.has_input_gradient] == [False] * 3
    assert head.trains_weights
    assert (below.kept, encoder.kept) == (0, 4 * 64 * 16)
    assert [layer.gradient > 0 for layer in plan.layers] == [False, False, True, False]
    assert not any(parameter.is_trained for parameter in encoder.parameters)


def test_running_moments_are_not_trained():
    module = mm.nn.Sequential(mm.nn.Dense(16), mm.nn.BatchNorm())
    module.build((2, 8))
    module.eval()
    parameters = [p for layer in layer_graph(module, (64, 8)).layers for p in layer.parameters]
    assert sum(p.nbytes for p in parameters if p.is_trained) == 4 * (8 * 16 + 16 + 2 * 16)
    assert sum(p.nbytes for p in parameters if not p.is_trained) == 4 * 2 * 16


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_are_exchanged_by_parameter(bias):
    network = mm.nn.Dense(8, bias=bias)
    plan = mm.parallel.plan(network, (64, 4), "dgx-h200", 2, strategy="data", fused=False)
    exchanges = plan.candidate.tables.gradient_exchanges(plan.graph.layers[1], ("batch",))
    assert [x.nbytes for x in exchanges] == [4 * 4 * 8, *[4 * 8] * bias]


def test_weights_of_several_parameters_are_exchanged_as_these():
    class LowRank(mm.nn.Module):
        def __init__(self):
            self.left = mm.nn.Parameter(mm.zeros((40, 2)))
            self.right = mm.nn.Parameter(mm.zeros((2, 30)))
            self.bias = mm.nn.Parameter(mm.zeros(30))

        def __call__(self, x):
            return x @ (self.left @ self.right) + self.bias

    plan = mm.parallel.plan(LowRank(), (64, 40), "dgx-h200", 2, strategy="data", fused=False)
    exchanges = plan.candidate.tables.gradient_exchanges(plan.graph.layers[1], ("batch",))
    assert [x.nbytes for x in exchanges] == [4 * 80, 4 * 60, 4 * 30]
    assert plan.graph.layers[1].weights == 4 * 40 * 30


# marks, names and networks without products -------------------------------------------------------


class Marked(mm.nn.Module):
    """A dense layer whose result passes through a function that marks expressions."""

    def __init__(self, marked):
        self.inner, self.marked = mm.nn.Dense(8), marked
        self.state = mm.nn.Buffer(0.0, (4,))

    def __call__(self, x):
        return self.marked(self, x)


def _with_version(module, x):
    module.state.assign(mm.mean(x, axis=0))
    return module.inner(x - module.state)


def _doubled(x):
    return mm.custom_gradient(lambda y: (y * 2.0, lambda cotangent: cotangent))(x)


MARKED = {
    "remat": lambda module, x: mm.remat(module.inner)(x),
    "stop_gradient": lambda module, x: mm.stop_gradient(module.inner(x)),
    "custom_gradient": lambda module, x: _doubled(module.inner(x)),
    "version": _with_version,
    "loop": lambda module, x: mm.fori_loop(0, 3, lambda i, y: y * 2.0, module.inner(x)),
    "cond": lambda module, x: mm.cond(
        mm.sum(x) > 0, lambda: module.inner(x), lambda: module.inner(x) * 2.0
    ),
    "composite": lambda module, x: mm.linalg.pinv(module.inner(x)),
}


@pytest.mark.parametrize("marked", [*MARKED])
def test_marked_expressions_are_planned(marked):
    plan = mm.parallel.plan(Marked(MARKED[marked]), (16, 4), "dgx-h200", 2)
    assert any(layer.kind == "Dense" for layer in plan.layers)
    assert plan.seconds > 0


class Chain(mm.nn.Module):
    """Dense layers, of which a checkpoint computes some again."""

    def __init__(self, layers, start, stop):
        self.layers = [mm.nn.Dense(8, activation="relu") for _ in range(layers)]
        self.start, self.stop = start, stop

    def __call__(self, x):
        def inner(y):
            for layer in self.layers[self.start : self.stop]:
                y = layer(y)
            return y

        for layer in self.layers[: self.start]:
            x = layer(x)
        x = mm.remat(inner)(x) if self.start < self.stop else inner(x)
        for layer in self.layers[self.stop :]:
            x = layer(x)
        return x


@pytest.mark.parametrize("layers", [1, 3, 4])
def test_checkpoints_keep_their_inputs_and_their_result(layers):
    plain = layer_graph(Chain(layers, 0, 0), (16, 8)).layers
    for start, stop in combinations(range(layers + 1), 2):
        marked = layer_graph(Chain(layers, start, stop), (16, 8)).layers
        assert [replace(x, kept=0) for x in marked] == [replace(x, kept=0) for x in plain]
        inside = range(start + 1, stop)  # layer i is that of number i - 1
        assert [x.kept for x in marked] == [
            0 if i in inside else x.kept for i, x in enumerate(plain)
        ]


def test_operations_on_the_input_are_a_layer():
    plan = mm.parallel.plan(mm.nn.Activation("relu"), (8, 3), "dgx-h200", 2)
    assert [layer.name for layer in plan.layers] == ["input", "maximum 1", "loss"]
    assert plan.samples_per_second > 0
    normalized = layer_graph(mm.nn.Sequential(mm.nn.BatchNorm(), mm.nn.Dense(3)), (8, 5))
    statistics = {x.role for layer in normalized.layers[1:-2] for x in layer.dependencies}
    assert statistics == {"batch"}
    transposed = mm.nn.Lambda(lambda x: mm.permute_dims(x, (0, 2, 1)))
    moved = layer_graph(mm.nn.Sequential(transposed, mm.nn.Dense(3)), (8, 5, 2))
    assert [layer.name for layer in moved.layers] == ["input", "1", "loss"]


def test_networks_and_inputs_without_anything_to_divide_are_refused():
    with pytest.raises(OptionError, match="computes nothing from its input"):
        mm.parallel.plan(mm.nn.Lambda(lambda x: x), (8, 3), "dgx-h200")
    for shape in [(0, 8), (4, 0)]:
        with pytest.raises(ShapeError, match="has no elements"):
            mm.parallel.plan(mm.nn.Dense(3), shape, "dgx-h200")


def test_parts_without_elements_are_planned():
    class Cut(mm.nn.Module):
        def __init__(self):
            self.a, self.b, self.c = (mm.nn.Dense(4) for _ in range(3))

        def __call__(self, x):
            return mm.concat([self.a(x)[:, :0] + self.b(x)[:, :0], self.c(x)], axis=1)

    plan = mm.parallel.plan(Cut(), (8, 3), "dgx-h200", 2)
    assert {layer.depth for layer in plan.graph.layers if not layer.has_product} == {0}


class TwoWeights(mm.nn.Module):
    """A module with two products, and two outputs."""

    def __init__(self):
        self.first, self.second = (mm.nn.Parameter(mm.zeros((8, 8))) for _ in range(2))

    def __call__(self, x):
        y = mm.tanh(x @ self.first)
        return y, y @ self.second


def test_every_layer_has_a_name_of_its_own():
    network = mm.nn.Sequential(mm.nn.Dense(8), TwoWeights())
    plan = mm.parallel.plan(network, (16, 4), "dgx-h200", 2)
    assert [*plan.options] == ["input", "0", "1", "1 3", "loss", "loss 5"]
    assert [*plan.options.values()] == [layer.option for layer in plan.layers]


# kept values --------------------------------------------------------------------------------------


def _dense(activation):
    return lambda: [mm.nn.Dense(8), mm.nn.Activation(activation)]


def _convolution(*more):
    return lambda: [mm.nn.Conv2d(8, 3, padding=1), *[layer() for layer in more]]


def _dense_moved(move):
    return lambda: [mm.nn.Dense(8), mm.nn.Lambda(move)]


RELU, POOL = lambda: mm.nn.Activation("relu"), lambda: mm.nn.MaxPool2d(3, stride=1, padding=1)


@pytest.mark.parametrize(
    ("block", "values"),
    [
        (_dense("relu"), 1),
        (_dense("tanh"), 1),
        (_dense("gelu"), 2),
        (_convolution(RELU), 1),
        (_convolution(mm.nn.BatchNorm), 2),
        (_convolution(mm.nn.BatchNorm, RELU), 2),
        (_convolution(RELU, POOL), 2),
        (_convolution(mm.nn.BatchNorm, RELU, POOL), 3),
        (lambda: [mm.nn.Residual(mm.nn.Sequential(*_convolution(mm.nn.BatchNorm, RELU)()))], 3),
        (_dense_moved(lambda x: mm.reshape(mm.reshape(x, (8, 8, 8)), (64, 8))), 1),
        (_dense_moved(lambda x: mm.permute_dims(mm.permute_dims(x, (1, 0)), (1, 0))), 1),
        (_dense_moved(lambda x: mm.concat([x[:, 4:], x[:, :4]], axis=1)), 1),
        (_dense_moved(lambda x: mm.concat([mm.tanh(x[:, 4:]), mm.exp(x[:, :4])], axis=1)), 2),
    ],
)
def test_values_that_the_backward_pass_reads_are_kept(block, values):
    """Of a block of element-wise operations, its input and its result, not what is in between."""
    shape = (4, 8, 6, 6) if isinstance(block()[0], (mm.nn.Conv2d, mm.nn.Residual)) else (64, 8)

    def kept(blocks):
        network = mm.nn.Sequential(*[layer for _ in range(blocks) for layer in block()])
        return sum(layer.kept for layer in layer_graph(network, shape).layers)

    statistics = 4 * 4 * 8  # of the channels, at most four
    assert 0 <= (kept(5) - kept(3)) / 2 - values * 4 * np.prod(shape) <= statistics


def test_moved_values_are_kept_where_a_product_reads_them():
    flat = mm.nn.Sequential(mm.nn.Conv2d(4, 3, padding=1), mm.nn.Flatten(), mm.nn.Dense(3))
    kept = sum(layer.kept for layer in layer_graph(flat, (8, 3, 6, 6)).layers)
    assert kept == 4 * 8 * (3 * 36 + 4 * 36 + 3)
    network = mm.nn.Sequential(mm.nn.Dense(8), mm.nn.MultiheadAttention(8, heads=2))
    layers = [x for x in layer_graph(network, (2, 16, 8)).layers if x.name != "contract 4"]
    values = 1 + 1 + 3 + 1 + 1  # input, Dense, queries with keys and values, averages, output
    assert sum(layer.kept for layer in layers) == values * 4 * 2 * 16 * 8


def test_the_output_is_kept_once():
    plan = mm.parallel.plan(mm.nn.Dense(16, bias=False), (64, 8), "dgx-h200", 1)
    assert [layer.memory for layer in plan.layers] == [4 * 64 * 8, 4 * (3 * 128 + 64 * 16), 0]
