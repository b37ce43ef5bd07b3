"""The layers of a network: their products, their roles and their parameters."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import magmath as mm
from magmath.errors import OptionError
from magmath.parallel.planner.layer_grouping import layer_graph


@pytest.fixture(autouse=True)
def _pool():
    with mm.init(workers=0):
        yield


CONVOLUTIONS = {1: mm.nn.Conv1d, 2: mm.nn.Conv2d, 3: mm.nn.Conv3d}


@settings(deadline=None, max_examples=40)
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
