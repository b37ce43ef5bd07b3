"""The zoo: sizes known from the papers and torchvision, and a step of training as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import close_pools, current
from magmath import nn
from magmath.errors import MagmathError
from magmath.nn import zoo
from magmath.nn.abstract import abstract_arrays, trace_call
from magmath.nn.forward_hooks import forward_hook
from magmath.nn.zoo import inception
from torch_counterparts import Counterpart

COUNTS: list[tuple[str, dict[str, Any], int]] = [
    ("mlp", {}, 118_282),
    ("lenet5", {}, 61_706),
    ("alexnet", {}, 61_100_840),
    ("alexnet_cifar", {}, 7_506_762),
    ("vgg11", {}, 132_863_336),
    ("vgg16", {}, 138_357_544),
    ("vgg16", {"batch_norm": True}, 138_365_992),
    ("googlenet", {}, 6_998_552),
    ("googlenet", {"auxiliary": True}, 13_378_280),
    ("inception_v3", {}, 23_834_568),
    ("inception_v3", {"auxiliary": True}, 27_161_264),
    ("resnet18", {}, 11_689_512),
    ("resnet20", {}, 272_474),
    ("resnet34", {}, 21_797_672),
    ("resnet50", {}, 25_557_032),
    ("mobilenet_v2", {}, 3_504_872),
]


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """Return the memory of large networks after each test."""
    yield
    close_pools(all_tests=False)


@contextmanager
def _zeros_at_first() -> Iterator[None]:
    """Parameters begin as zeros, which takes less time than random numbers."""
    former = dict(nn.initializers.INITIALIZERS)
    zeros = nn.initializers.zeros
    nn.initializers.INITIALIZERS.update(dict.fromkeys(former, zeros))
    try:
        yield
    finally:
        nn.initializers.INITIALIZERS.update(former)


@pytest.mark.parametrize(("name", "settings", "count"), COUNTS)
def test_parameters_are_as_many_as_published(
    name: str, settings: dict[str, Any], count: int
) -> None:
    with current("inline"), _zeros_at_first():
        network = zoo.NETWORKS[name](**settings)
        network.build((1, *zoo.NETWORKS[name].image))
        assert sum(p.size for p in network.parameters()) == count


SHAPES: dict[str, list[tuple[int, ...]]] = {
    "lenet5": [(6, 28, 28), (6, 14, 14), (16, 10, 10), (16, 5, 5), (400,), (120,), (84,)],
    "mlp": [(128,), (128,), (10,)],
    "alexnet_cifar": [(64, 32, 32), (64, 16, 16), (192, 16, 16), (192, 8, 8), (384, 8, 8),
                      (256, 8, 8), (256, 8, 8), (256, 4, 4), (4096,), (1024,), (1024,)],
    "alexnet": [(64, 55, 55), (64, 27, 27), (192, 27, 27), (192, 13, 13), (384, 13, 13),
                (256, 13, 13), (256, 6, 6), (4096,)],
    "vgg11": [(64, 224, 224), (128, 112, 112), (256, 56, 56), (512, 28, 28), (512, 14, 14),
              (512, 7, 7), (4096,)],
    "vgg16": [(64, 224, 224), (128, 112, 112), (256, 56, 56), (512, 28, 28), (512, 14, 14),
              (512, 7, 7), (4096,)],
    "googlenet": [(64, 112, 112), (192, 56, 56), (256, 28, 28), (480, 28, 28), (512, 14, 14),
                  (528, 14, 14), (832, 14, 14), (832, 7, 7), (1024, 7, 7), (1024,)],
    "inception_v3": [(32, 149, 149), (32, 147, 147), (64, 147, 147), (80, 73, 73), (192, 71, 71),
                     (192, 35, 35), (256, 35, 35), (288, 35, 35), (768, 17, 17), (1280, 8, 8),
                     (2048, 8, 8)],
    "resnet18": [(64, 112, 112), (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7), (512,)],
    "resnet20": [(16, 32, 32), (32, 16, 16), (64, 8, 8), (64,)],
    "resnet34": [(64, 112, 112), (64, 56, 56), (128, 28, 28), (256, 14, 14), (512, 7, 7), (512,)],
    "resnet50": [(64, 112, 112), (256, 56, 56), (512, 28, 28), (1024, 14, 14), (2048, 7, 7)],
    "mobilenet_v2": [(32, 112, 112), (16, 112, 112), (24, 56, 56), (32, 28, 28), (64, 14, 14),
                     (96, 14, 14), (160, 7, 7), (320, 7, 7), (1280,)],
}  # fmt: skip
"""The sizes of maps in the papers' tables, in their order; the networks have others in between."""


def test_every_network_has_its_rows() -> None:
    """Its number of parameters, the sizes of its maps, and a step against PyTorch's."""
    tables = [dict.fromkeys(row[0] for row in COUNTS), SHAPES, dict.fromkeys(x[0] for x in SMALL)]
    assert all(zoo.NETWORKS.keys() == table.keys() for table in tables)


@pytest.mark.parametrize("name", SHAPES)
def test_maps_have_the_sizes_of_the_papers(name: str) -> None:
    result: list[tuple[int, ...]] = []
    with current("inline"), _zeros_at_first():
        network = zoo.NETWORKS[name]()
        inputs = abstract_arrays("test", [(1, *zoo.NETWORKS[name].image)], None)
        with forward_hook(lambda _, y: result.append(y.shape[1:])):
            trace_call(network, inputs)
    following = iter(result)
    for shape in SHAPES[name]:
        assert shape in following, (shape, result)


# one step ----------------------------------------------------------------------------------------

Row = tuple[str, dict[str, Any], tuple[int, ...]]
IN_BOTH_TYPES: list[Row] = [
    ("mlp", {"units": (16, 8)}, (3, 1, 5, 5)),
    ("lenet5", {}, (4, 1, 28, 28)),
    ("lenet5", {"activation": "tanh", "pool": "average"}, (4, 1, 28, 28)),
    ("alexnet", {"units": 16, "dropout": 0}, (2, 3, 67, 70)),
    ("alexnet_cifar", {"units": 16}, (2, 3, 16, 16)),
    ("vgg11", {"units": 8, "dropout": 0, "batch_norm": True}, (2, 3, 32, 32)),
    ("vgg16", {"units": 8, "dropout": 0}, (1, 3, 32, 32)),
    ("googlenet", {"auxiliary": True, "dropout": 0}, (2, 3, 64, 64)),
    ("resnet18", {"stem": "small"}, (3, 3, 9, 8)),
    ("resnet20", {"width": 8}, (3, 1, 9, 8)),
    ("mobilenet_v2", {"dropout": 0}, (2, 3, 33, 34)),
]
IN_FLOAT64: list[Row] = [
    ("inception_v3", {"dropout": 0}, (2, 3, 75, 75)),
    ("resnet18", {}, (2, 3, 33, 34)),
    ("resnet34", {}, (2, 3, 33, 34)),
    ("resnet50", {}, (2, 3, 33, 34)),
]
"""These take long. Their layers are in float32 those of others: the large stem is GoogLeNet's, blocks
are those of the small ResNets, and for the narrow filters of Inception v3 there is one module."""
SMALL = [*IN_BOTH_TYPES, *IN_FLOAT64]


@pytest.mark.parametrize(("name", "settings", "shape"), SMALL)
def test_a_step_equals_pytorch(name: str, settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    mm.set_default_dtype("float64")
    try:
        with current("inline"):
            _check_step(zoo.NETWORKS[name](classes=5, **settings), shape, 1e-8, _check_close)
    finally:
        mm.set_default_dtype("float32")


@pytest.mark.parametrize(("name", "size"), [("lenet5", (32, 32)), ("resnet20", (9, 8))])
@pytest.mark.parametrize(("kind", "workers"), [("shared", 2), ("messages", 3)])
def test_a_step_equals_pytorch_on_several_workers(
    name: str, size: tuple[int, int], kind: str, workers: int
) -> None:
    mm.set_default_dtype("float64")
    try:
        with current(kind, workers):
            _check_step(zoo.NETWORKS[name](classes=5), (6, 3, *size), 1e-8, _check_close)
    finally:
        mm.set_default_dtype("float32")


SHALLOW = {"mlp", "lenet5", "alexnet", "alexnet_cifar"}
"""Networks of so few activations that no ReLU's sign depends on rounding in float32. In the others
batch norm of few images magnifies rounding errors, so they have twice as many."""
MAX_CHANGE = 0.3
"""Share of a gradient that a few changed signs may change, as they do between PyTorch's float32 and
float64."""


@pytest.mark.parametrize(("name", "settings", "shape"), IN_BOTH_TYPES)
def test_a_step_in_float32(name: str, settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    network = zoo.NETWORKS[name](classes=5, **settings)
    limit, check_gradient = 1e-4, _check_close
    if name not in SHALLOW:
        shape, limit, check_gradient = (2 * shape[0], *shape[1:]), 1e-3, _check_most
    with current("inline"):
        _check_step(network, shape, limit, check_gradient)


def test_a_step_of_narrow_filters_in_float32() -> None:
    """Of 1×7, 7×1, 1×3 and 3×1 elements."""
    modules = (inception._module_c(16), inception._row_and_column_convs(16))
    with current("inline"):
        network = nn.Sequential(*modules, nn.GlobalAvgPool(), nn.Dense(5))
        _check_step(network, (4, 8, 9, 8), 1e-3, _check_most)


def _check_step(
    network: nn.Module,
    shape: tuple[int, ...],
    limit: float,
    check_gradient: Callable[[Any, Any, float, str], None],
) -> None:
    """Compare outputs, loss, every gradient and the running averages."""
    random = np.random.default_rng(3)
    dtype = mm.get_default_dtype().name
    mm.random.seed(4)
    x = random.normal(size=shape).astype(dtype)
    labels = random.integers(0, 5, shape[0])
    network.build(shape)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.rate = 0.0
    counterpart = Counterpart(network)
    parameters = network.trainable()
    loss, gradients = mm.value_and_grad(
        lambda: zoo.auxiliary_cross_entropy(network(mm.asarray(x)), mm.asarray(labels)), parameters
    )
    mm.evaluate(loss, *gradients.values(), *network.buffers())  # as one program
    outputs = counterpart(x)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    losses = [torch.nn.functional.cross_entropy(y, torch.from_numpy(labels)) for y in outputs]
    expected = losses[0] + 0.3 * sum(losses[1:], torch.zeros((), dtype=outputs[0].dtype))
    expected.backward()
    np.testing.assert_allclose(float(loss), expected.item(), rtol=limit)
    for path, parameter in network.named_parameters():
        slope = counterpart.parameters[path].grad
        assert slope is not None
        check_gradient(gradients[parameter].numpy(), slope.numpy(), limit, path)
    for path, buffer in network.named_buffers():
        _check_close(buffer.numpy(), counterpart.tensors[path].numpy(), limit, path)
    network.eval()
    with torch.no_grad():
        _check_close(network(mm.asarray(x)).numpy(), counterpart(x).numpy(), limit, "scores")


def _check_close(actual: Any, expected: Any, limit: float, what: str) -> None:
    scale = max(1e-2, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(actual, expected, rtol=limit, atol=limit * scale, err_msg=what)


def _check_most(actual: Any, expected: Any, limit: float, what: str) -> None:
    """Compare gradients of which rounding may change some elements."""
    change = float(np.linalg.norm(actual - expected))
    assert change <= MAX_CHANGE * float(np.linalg.norm(expected)) + limit, what


# settings ----------------------------------------------------------------------------------------


def test_every_network_takes_the_least_images_that_it_claims() -> None:
    with current("inline"), _zeros_at_first():
        for name, network in zoo.NETWORKS.items():
            n = network.min_extent
            module = network.for_images(n, n, classes=3)
            (scores,) = [trace_call(module, abstract_arrays("test", [(2, 3, n, n)], None))]
            assert scores.shape == (2, 3), name


def test_settings_that_are_not_known_are_refused() -> None:
    with pytest.raises(MagmathError, match='stem must be "large" or "small"'):
        zoo.resnet18(stem="tiny")  # type: ignore[arg-type]
    with pytest.raises(MagmathError, match="pool must be one of max, average"):
        zoo.lenet5(pool="sum")  # type: ignore[arg-type]
