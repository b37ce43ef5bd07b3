"""Modules of PyTorch on magmath: outputs, gradients and updated buffers equal PyTorch's."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

import magmath as mm
from magmath.errors import MagmathError, OptionError, ShapeError, UnsupportedError
from magmath.interop import from_torch
from magmath.interop.reading_torch.aten_operators import OPERATORS


@pytest.fixture(autouse=True)
def pool() -> None:
    mm.init(workers=0, device="cpu", seed=3)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + F.relu(self.norm(self.first(x)), inplace=True), inplace=True)


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.layers = getattr(nn, kind)(6, 5, batch_first=True, **options)
        self.head = nn.Linear(5 * (1 + options.get("bidirectional", False)), 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.words(words))[0][:, -1])


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.head = nn.Linear(6, 9, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.words(words)).mean(1))


class Causal(nn.Module):
    """A decoder block as nanoGPT writes it."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(20, width), nn.Embedding(8, width)
        self.norm, self.project = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.mix = nn.Sequential(nn.Linear(width, 16), nn.GELU(approximate="tanh"))
        self.head = nn.Linear(16, 20, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        n, length = words.shape
        x = self.words(words) + self.places(torch.arange(length, device=words.device))
        parts = self.project(self.norm(x)).split(x.shape[-1], dim=2)
        q, k, v = [p.view(n, length, self.heads, -1).transpose(1, 2) for p in parts]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(self.mix(x + y.transpose(1, 2).contiguous().view(x.shape)))


class Bags(nn.Module):
    """Bags of equal length, and ranges of indices, one of them empty."""

    def __init__(self, mode: str, padding_idx: int | None = None) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(9, 4, mode=mode, padding_idx=padding_idx)
        self.head = nn.Linear(4, 2)

    def forward(self, words: torch.Tensor, offsets: torch.Tensor) -> Any:
        return self.head(self.words(words)), self.words(words.reshape(-1), offsets)


class Masked(nn.Module):
    """Attention in which the first query of the first sample has no key."""

    def __init__(self, added: bool) -> None:
        super().__init__()
        self.added = added
        self.project = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(2, 3, 3, dtype=torch.bool)
        mask[0, 0] = False
        if self.added:
            mask = torch.zeros(2, 3, 3).masked_fill(~mask, -torch.inf)
        y = self.project(x)
        return F.scaled_dot_product_attention(y, y, y, mask)


class Mixed(nn.Module):
    """Many functions of arrays, a counter that is updated in place, and nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(3))
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor, power: float = 0.5) -> dict[str, Any]:
        if self.training:
            self.calls.add_(1)
        y = torch.cat([x * self.factor, torch.softmax(x, -1) * self.scale], -1)
        y = y.masked_fill(y > 1.5, 0.0)
        largest, _ = torch.topk(y, 2, dim=-1)
        y = torch.where(y < 0, y.abs() ** power, y)
        y = y / y.norm(dim=-1, keepdim=True).clamp_min(1e-6)
        return {"y": y, "largest": largest, "sums": (x.pow(2).sum(), x.std(dim=0), x.var(0))}


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        repeated = torch.cumsum(x.repeat(1, 2)[:, :6], 1)
        return torch.einsum("bi,ijk,bk->bj", x, self.weight, repeated).roll(1, 0).flip(1)


def words(most: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, most, shape)


CASES: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "dense": lambda: (
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.RMSNorm(8), nn.PReLU(), nn.Linear(8, 3)),
        (torch.randn(4, 6),),
    ),
    "images": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            Residual(8),
            nn.Conv2d(8, 8, 3, groups=2),
            nn.GroupNorm(2, 8),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 5),
        ),
        (torch.randn(4, 3, 12, 12),),
    ),
    "upsampling": lambda: (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            nn.InstanceNorm2d(4, affine=True),
            nn.LeakyReLU(0.1),
            nn.MaxPool2d(2),
            nn.SiLU(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.ConvTranspose2d(4, 4, 2, stride=2),
            nn.PixelShuffle(2),
            nn.ReflectionPad2d(1),
        ),
        (torch.randn(2, 2, 8, 8),),
    ),
    "volumes": lambda: (
        nn.Sequential(
            nn.Conv3d(2, 2, 3, padding=1),
            nn.BatchNorm3d(2),
            nn.Hardswish(),
            nn.MaxPool3d(2),
            nn.AdaptiveAvgPool3d(1),
        ),
        (torch.randn(2, 2, 4, 4, 4),),
    ),
    "series": lambda: (
        nn.Sequential(
            nn.Conv1d(3, 6, 3, padding="same", dilation=2),
            nn.Mish(),
            nn.AvgPool1d(2),
            nn.Flatten(),
            nn.LogSoftmax(-1),
        ),
        (torch.randn(4, 3, 10),),
    ),
    "encoder": lambda: (
        nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
            1,
            enable_nested_tensor=False,
        ),
        (torch.randn(3, 5, 8),),
    ),
    "attention": lambda: (
        nn.MultiheadAttention(8, 2, batch_first=True),
        (torch.randn(3, 5, 8), torch.randn(3, 7, 8), torch.randn(3, 7, 8)),
    ),
    "masked": lambda: (Masked(False), (torch.randn(2, 3, 4),)),
    "masked by addition": lambda: (Masked(True), (torch.randn(2, 3, 4),)),
    "weight norm": lambda: (
        nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Conv1d(3, 4, 2)),
            nn.Flatten(),
            nn.utils.parametrizations.weight_norm(nn.Linear(16, 2), dim=1),
        ),
        (torch.randn(2, 3, 5),),
    ),
    "bags": lambda: (Bags("mean"), (words(9, 3, 4), torch.tensor([0, 2, 7]))),
    "sums of bags": lambda: (Bags("sum", padding_idx=2), (words(9, 3, 4), torch.tensor([0, 5, 7]))),
    "maxima of bags": lambda: (
        Bags("max", padding_idx=2),
        (words(9, 3, 4), torch.tensor([0, 1, 7])),
    ),
    "decoder": lambda: (Causal(), (words(20, 3, 8),)),
    "LSTM": lambda: (Recurrent("LSTM", num_layers=2), (words(11, 4, 3),)),
    "GRU": lambda: (Recurrent("GRU", bidirectional=True), (words(11, 4, 3),)),
    "RNN": lambda: (Recurrent("RNN", nonlinearity="relu"), (words(11, 4, 3),)),
    "tied weights": lambda: (Tied(), (words(9, 3, 4),)),
    "functions": lambda: (Mixed(), (torch.randn(4, 3),)),
    "products": lambda: (Products(), (torch.randn(3, 4),)),
}


def made(name: str, training: bool) -> tuple[nn.Module, list[torch.Tensor]]:
    """Return a module in float64, and its arguments."""
    torch.manual_seed(0)
    module, arguments = CASES[name]()
    doubles = [x.double() if x.is_floating_point() else x for x in arguments]
    return module.double().train(training), doubles


def loss_of(outputs: Any, sine: Callable[[Any], Any], total: Callable[[Any], Any]) -> Any:
    """Return the sum of the sines of all floating point outputs."""
    leaves = [x for x in pytree.tree_leaves(outputs) if "float" in str(x.dtype)]
    return sum([total(sine(x)) for x in leaves])


@pytest.mark.parametrize("name", CASES)
def test_outputs_gradients_and_buffers_are_those_of_pytorch(name: str) -> None:
    """In the pool that has read the module and in another one, in training and in evaluation; in the
    other pool the latter reads buffers that training has updated, and has no gradients."""
    theirs, given = made(name, training=False)
    ours = from_torch(theirs, *given)
    assert not ours.training
    before = copy.deepcopy(theirs.state_dict())
    check_modes(theirs, ours, given)
    data = pickle.dumps(ours)
    mm.init(workers=2, device="cpu", launcher="threads", seed=3)
    again = pickle.loads(data)
    again.load_state_dict(before)
    check_counterparts(theirs.train(), again.train(), given)
    again.load_state_dict(theirs.state_dict())
    check_outputs(theirs.eval(), again.eval(), given)


def test_a_module_is_read_in_its_mode() -> None:
    theirs, given = made("dense", training=True)
    assert from_torch(theirs, *given).training


def check_modes(theirs: nn.Module, ours: Any, given: Sequence[torch.Tensor]) -> None:
    """Compare both in training and in evaluation; afterwards they have the weights of before."""
    before = copy.deepcopy(theirs.state_dict())
    for training in (True, False):
        check_counterparts(theirs.train(training), ours.train(training), given)
        theirs.load_state_dict(before)
        ours.load_state_dict(before)


def check_counterparts(theirs: nn.Module, ours: Any, given: Sequence[torch.Tensor]) -> None:
    """Compare the outputs, the updated buffers and the gradients of modules with equal weights."""
    before = copy.deepcopy(theirs.state_dict())
    check_outputs(theirs, ours, given)
    for path, value in theirs.state_dict().items():
        own = ours.state_dict().get(path)
        assert own is not None or path in ours.aliases()
        if own is not None:
            np.testing.assert_allclose(own.numpy(), value.numpy(), rtol=1e-12, atol=1e-14)

    theirs.load_state_dict(before)
    ours.load_state_dict(before)
    x = [mm.asarray(value) for value in given]
    _, gradients = mm.value_and_grad(lambda: loss_of(ours(*x), mm.sin, mm.sum), ours.trainable())
    parameters = list(theirs.parameters())
    loss = loss_of(theirs(*given), torch.sin, torch.sum)
    reference = torch.autograd.grad(loss, parameters, allow_unused=True)
    for own, other in zip(ours.trainable(), reference, strict=True):
        known = np.zeros(own.shape) if other is None else other.numpy()
        np.testing.assert_allclose(gradients[own].numpy(), known, rtol=1e-8, atol=1e-11)


def check_outputs(theirs: nn.Module, ours: Any, given: Sequence[torch.Tensor]) -> None:
    outputs = ours(*[mm.asarray(value) for value in given])
    actual, expected = pytree.tree_leaves(outputs), pytree.tree_leaves(theirs(*given))
    assert len(actual) == len(expected)
    for value, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(value.numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("dense", [(9, 6), (1, 6), (0, 6)]),
        ("images", [(5, 3, 20, 16), (1, 3, 9, 9)]),
        ("encoder", [(1, 9, 8), (6, 2, 8)]),
    ],
)
def test_extents_other_than_those_of_the_example(name: str, shapes: list[tuple[int, ...]]) -> None:
    theirs, given = made(name, training=False)
    ours = from_torch(theirs, *given, variable_axes=4)
    for shape in shapes:
        x = torch.randn(shape).double()
        np.testing.assert_allclose(ours(x).numpy(), theirs(x).detach().numpy(), atol=1e-11)


@pytest.mark.parametrize("compiled", [False, True])
def test_training_equals_that_of_pytorch(compiled: bool) -> None:
    theirs, (x,) = made("images", training=True)
    labels = torch.tensor([0, 4, 2, 1])
    ours, momentum = from_torch(theirs, x), mm.optim.Momentum(0.05)

    def step(x: Any, y: Any) -> Any:
        loss, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(ours(x), y), ours.trainable()
        )
        momentum.update(gradients)
        return loss

    own_step = mm.compile(step) if compiled else step
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.05, momentum=0.9)
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(theirs(x), labels)
        loss.backward()
        optimizer.step()
        assert float(own_step(x, mm.asarray(labels))) == pytest.approx(loss.item(), rel=1e-9)
    for path, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[path].numpy(), value.numpy(), atol=1e-10)


def test_fit_and_weights_back_in_pytorch() -> None:
    draw = np.random.default_rng(0)
    centers = draw.normal(size=(3, 6)) * 3
    labels = draw.integers(0, 3, 240)
    x = (centers[labels] + draw.normal(size=(240, 6))).astype("float32")
    theirs = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    network = mm.nn.NeuralNetwork(from_torch(theirs, torch.zeros(2, 6)), optimizer="adam")
    network.fit(x, labels, epochs=20, batch_size=24, verbose=False)
    assert network.evaluate(x, labels)["accuracy"] > 0.9
    state = network.module.state_dict()
    theirs.load_state_dict({path: torch.tensor(value.numpy()) for path, value in state.items()})
    outputs = theirs.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(network.predict(x).numpy(), outputs, rtol=1e-4, atol=1e-5)


def test_dropout_draws_in_training_only() -> None:
    theirs = nn.Sequential(nn.Dropout(0.5), nn.Dropout2d(0.5, inplace=True))
    x = mm.ones((8, 16, 32, 32))
    ours = from_torch(theirs, torch.ones(2, 3, 4, 4), variable_axes=4)
    dropped = ours(x).numpy()
    assert set(np.unique(dropped)) == {0.0, 4.0}
    assert abs(dropped.mean() - 1) < 0.2
    assert (ours(x).numpy() != dropped).any()
    assert (ours.eval()(x).numpy() == 1).all()


def test_frozen_parameters_stay_frozen() -> None:
    theirs = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    theirs[0].requires_grad_(False)
    ours = from_torch(theirs, torch.zeros(2, 3))
    assert [v.name for v in ours.trainable()] == ["1.weight", "1.bias"]


def test_copies_compute_the_same() -> None:
    theirs, (x,) = made("images", training=False)
    ours = from_torch(theirs, x)
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert (other(x).numpy() == ours(x).numpy()).all()
        getattr(other, "9").weight.assign(mm.zeros((5, 8), dtype=mm.float64))
        assert (other(x).numpy() != ours(x).numpy()).any()


class Clamping(nn.Module):
    """A module that updates its parameter, a buffer, and its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([-1.0, 2.0, -3.0]))
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.clamp_(min=0.0)
        x.mul_(2.0)
        self.total += x.sum(0)
        return x * self.weight


def test_updates_of_parameters_and_buffers() -> None:
    theirs = Clamping()
    ours, x = from_torch(theirs, torch.ones(2, 3)), mm.ones((2, 3))
    for _ in range(2):
        assert (ours(x).numpy() == theirs(torch.ones(2, 3)).detach().numpy()).all()
    assert (ours.weight.numpy() == theirs.weight.detach().numpy()).all()
    assert (ours.total.numpy() == theirs.total.numpy()).all()
    assert (x.numpy() == 1).all()


class Unsaved(nn.Module):
    """A module with buffers that are not saved, of which it assigns one, and a shared weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("factors", torch.arange(3.0), persistent=False)
        self.register_buffer("unused", torch.ones(3), persistent=False)
        self.register_buffer("count", torch.zeros(2), persistent=False)
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.second(self.first(x)) * self.factors + self.shift + self.count.sum()


def test_the_state_is_that_of_pytorch_without_unsaved_buffers() -> None:
    theirs, x = Unsaved(), torch.ones(2, 3)
    ours = from_torch(theirs, x, variable_axes=0)
    for _ in range(2):
        np.testing.assert_allclose(ours(x).numpy(), theirs(x).detach().numpy(), rtol=1e-6)
    assert ours.state_dict().keys() - theirs.state_dict().keys() == {"count"}  # which is assigned
    state = {k: torch.from_numpy(np.array(v)) for k, v in ours.state_dict().items()}
    state |= {path: state[first] for path, first in ours.aliases().items()}
    assert theirs.load_state_dict(state, strict=False).missing_keys == []
    assert ours.load_state_dict(theirs.state_dict(), strict=False).missing_keys == ["count"]


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.pool = nn.MaxPool2d(2, return_indices=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.pool(self.norm(x))


def test_buffers_keep_their_values_if_results_are_missing() -> None:
    ours = from_torch(Pooled(), torch.ones(2, 1, 4, 4), variable_axes=0)
    with pytest.raises(MagmathError, match="use the first result alone"):
        ours(9 * mm.ones((2, 1, 4, 4)))
    assert ours.norm.running_mean.item() == 0


class Named(nn.Module):
    def forward(
        self, x: torch.Tensor, *, a: torch.Tensor, b: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        return x + 2 * a - b["c"] * b["d"]


def test_the_order_of_names_of_arguments_does_not_matter() -> None:
    x, a, c, d = (torch.full((2, 3), float(i)) for i in range(1, 5))
    ours = from_torch(Named(), x, a=a, b={"c": c, "d": d}, variable_axes=0)
    expected = Named()(x, a=a, b={"c": c, "d": d})
    x, a, c, d = (mm.asarray(value) for value in (x, a, c, d))
    assert (ours(x, b={"d": d, "c": c}, a=a).numpy() == expected.numpy()).all()
    for wrong in ({"c": c}, {"c": c, "e": d}, {"c": c, "d": [d]}, c):
        with pytest.raises(ShapeError, match="nested as the example was"):
            ours(x, a=a, b=wrong)


class OptionallyMasked(nn.Module):
    def forward(self, x: torch.Tensor, mask: Any = None, factor: float = 1.0) -> torch.Tensor:
        return x * factor if mask is None else x * mask


def test_an_array_in_place_of_another_argument_is_refused() -> None:
    x = torch.ones(2, 3)
    ours = from_torch(OptionallyMasked(), x, None, 2.0)
    assert (ours(x, None, 2.0).numpy() == 2).all()
    for array in (x, x.numpy(), mm.ones((2, 3)), mm.ones(0)):
        with pytest.raises(ShapeError, match="made for the argument None"):
            ours(x, array, 2.0)
        with pytest.raises(ShapeError, match=r"made for the argument 2\.0"):
            ours(x, None, array)


def test_ranges_have_the_digits_of_their_type() -> None:
    x = torch.zeros(1, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32, torch.int64, None):
        module = Function(
            lambda x, dtype=dtype: (
                x + torch.arange(9, dtype=dtype),
                x + torch.arange(0, 1, 0.1, dtype=None if dtype is torch.int64 else dtype),
            )
        )
        for found, wanted in zip(from_torch(module, x)(x), module(x), strict=True):
            np.testing.assert_array_equal(found.numpy(), wanted.numpy())


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4)

    def forward(self, x: torch.Tensor) -> Any:
        parts = nn.utils.rnn.PackedSequence(x, torch.tensor([2, 2]))
        return self.layer(parts)[0].data


OTHER_OVERLOADS: dict[str, Callable[[torch.Tensor], Any]] = {
    "view.dtype": lambda x: x.view(torch.int32),
    "scatter.reduce": lambda x: x.scatter(0, torch.zeros(4, 3, dtype=torch.long), x, reduce="add"),
    "where.default": lambda x: torch.where(x > 0),
    "repeat_interleave.Tensor": lambda x: torch.repeat_interleave(x[0].long()),
    "lstm.data": Packed(),
}


@pytest.mark.parametrize("name", OTHER_OVERLOADS)
def test_overloads_with_other_arguments_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="from_torch"):
        from_torch(Function(OTHER_OVERLOADS[name]), torch.ones(4, 3), variable_axes=0)


@pytest.mark.parametrize("layer", [nn.Dropout(1.0), nn.Dropout1d(1.0), nn.LSTM(3, 4, 2, dropout=1)])
def test_dropout_of_all_elements(layer: nn.Module) -> None:
    x = torch.ones(2, 3, 3)
    results, expected = (
        pytree.tree_leaves(f(x)) for f in (from_torch(layer, x, variable_axes=0), layer)
    )
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.numpy(), value.detach().numpy(), rtol=1e-5, atol=1e-6)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


class Eigenvalues(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eig(x).eigenvalues.abs()


@pytest.mark.parametrize("axes", [1, 2])
def test_extents_that_the_module_fixes_are_named(axes: int) -> None:
    """torch.export records the number of samples as a constant of `expand`."""
    x = torch.randn(3, 4, 5)
    ours = from_torch(Function(lambda x: x.take_along_dim(x.argsort(2), 2)), x, variable_axes=axes)
    np.testing.assert_array_equal(ours(x), x.sort(2)[0])
    with pytest.raises(ShapeError, match=r"needs an array of shape \(3, 4, 5\), was given \(6, 4"):
        ours(torch.randn(6, 4, 5))


def test_mistakes_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match="needs a module of PyTorch, was given ReLU"):
        from_torch(mm.nn.ReLU(), torch.zeros(2, 3))
    with pytest.raises(MagmathError, match="control flow must not depend on values") as caught:
        from_torch(Branching(), torch.zeros(2, 3))
    assert "torch.where" in str(caught.value)
    assert "Eq(u0" not in str(caught.value)
    with pytest.raises(MagmathError, match=r"values \(of aten.equal.default\)"):
        from_torch(Function(lambda x: x * torch.equal(x, x)), torch.zeros(2, 3))
    with pytest.raises(MagmathError, match="does not have: aten.linalg_eig"):
        from_torch(Eigenvalues(), torch.zeros(3, 3))
    assert capfd.readouterr() == ("", "")
    ours = from_torch(nn.Linear(3, 2), torch.zeros(1, 3))
    with pytest.raises(ShapeError, match=r"needs an array of shape \(1, "):
        ours(mm.zeros((4, 3)))
    with pytest.raises(
        ShapeError, match=r"nested as the example was, \(\*\), was given \(\*, \*\)"
    ):
        ours(mm.zeros((1, 3)), mm.zeros((1, 3)))
    powers = from_torch(Mixed().eval(), torch.ones(2, 3), power=0.5)
    with pytest.raises(ShapeError, match="made for the argument 0.5, was given 2.0"):
        powers(mm.ones((2, 3)), power=2.0)


class Elements(nn.Module):
    """Indices of fewer elements than the array has."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.gather(1, i), x.scatter(1, i, x), x.scatter_add(1, i, x), x.scatter(0, i, 5.0)


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


INTEGERS = torch.tensor([7, -7, 8, -8, 0, 2**40 + 1, -(2**40) - 1])
NUMBERS = torch.tensor([[0.5, -1.0, 0.5, 3.0], [2.0, 1.0, 1.0, -0.25], [0.0, 1.0, -0.0, 7.0]])
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "truncated division": (
        lambda x: (
            torch.div(x, 3, rounding_mode="trunc"),
            torch.div(x, -3, rounding_mode="floor"),
            torch.div(x, 2.5, rounding_mode="trunc"),
        ),
        (INTEGERS,),
    ),
    "division of integers": (
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        (INTEGERS, torch.tensor([2, 2, -3, -3, 5, 3, 3])),
    ),
    "stable sorts": (
        lambda x: (
            *torch.sort(x, stable=True),
            *torch.sort(x, stable=True, dim=0, descending=True),
            torch.argsort(x, dim=0, stable=True),
            *torch.sort(x, 0),
        ),
        (NUMBERS,),
    ),
    "nan is the largest": (
        lambda x: (
            *torch.sort(x, dim=0, stable=True),
            *torch.sort(x, dim=0, descending=True, stable=True),
            torch.argsort(x, descending=True, stable=True),
            *torch.topk(x, 1, 0),
            *torch.topk(x, 3, 1, largest=False),
            *torch.max(x, 1),
            *torch.min(x, 0),
        ),
        (torch.tensor([[1.0, torch.nan, torch.inf, 2.0], [1.0, 0.0, torch.nan, -torch.inf]]),),
    ),
    "moments": (
        lambda x: (
            *torch.var_mean(x),
            *torch.var_mean(x, unbiased=False),
            *torch.var_mean(x, 1, False, True),
            *torch.std_mean(x, dim=0, correction=2),
        ),
        (NUMBERS,),
    ),
    "norms": (
        lambda x: (x.norm(), x.norm(1, 0), torch.norm(x, dim=1), torch.norm(x, 3, dim=0)),
        (NUMBERS,),
    ),
    "windows with a divisor": (
        lambda x: (
            F.avg_pool2d(x, 3, 2, ceil_mode=True, divisor_override=5),
            F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=7),
            F.avg_pool2d(x, 2, divisor_override=3),
        ),
        (torch.arange(72.0).view(1, 2, 6, 6),),
    ),
    "limits": (
        lambda x: (
            torch.clamp(x, 0.5, 2.0),
            torch.clamp(x, max=torch.tensor(1.0)),
            torch.clamp(x, torch.tensor([0.5, 1.0, 2.0, 3.0])),
            torch.clamp(x, 2.0, 1.0),
        ),
        (NUMBERS,),
    ),
    "limits of integers": (lambda x: (torch.clamp(x, -1, 7), torch.clamp(x, 0.5)), (INTEGERS,)),
    "parts": (
        lambda x: (*torch.split(x, 3, 1), *torch.split(x, [1, 2]), *torch.chunk(x, 3, 1)),
        (NUMBERS,),
    ),
    "parts of nothing": (lambda x: (*torch.split(x, 2), *torch.chunk(x, 2)), (NUMBERS[:0],)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_values_and_types_of_pytorch(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    module = Function(function)
    converted = from_torch(module, *arguments, variable_axes=0)
    results, expected = (pytree.tree_leaves(one(*arguments)) for one in (converted, module))
    assert len(results) == len(expected)
    for x, y in zip(results, expected, strict=True):
        assert str(y.dtype) == f"torch.{x.dtype.name}"
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-6)


SPECIAL = [0.5, -1.0, 2.0, 0.0, -0.0, 3.0, torch.inf, -torch.inf, torch.nan]
OPERANDS = {
    "bool": torch.tensor([True, False, True]),
    "uint8": torch.tensor([0, 3, 200], dtype=torch.uint8),
    "int16": torch.tensor([0, -3, 200], dtype=torch.int16),
    "int64": torch.tensor([1, -3, 2**40 + 1]),
    "float16": torch.tensor(SPECIAL, dtype=torch.float16),
    "float32": torch.tensor(SPECIAL),
    "float64": torch.tensor(SPECIAL, dtype=torch.float64),
}


OTHERS = ("bernoulli", "empty_like", "gelu")
"""Operators that draw, or have no values; and gelu, whose value at inf is nan in PyTorch's float32
and inf in its float64."""


def _overloads(tensors: int) -> list[tuple[str, Any]]:
    """The known operators that need so many tensors and nothing else."""
    overloads = []
    for name in OPERATORS:
        packet = getattr(torch.ops.aten, name, None)
        for overload in [] if packet is None else packet.overloads():
            operator = getattr(packet, overload)
            needed = [x for x in operator._schema.arguments if not x.has_default_value()]
            if [str(x.type) for x in needed] == ["Tensor"] * tensors and "out" not in overload:
                overloads.append((name, operator))
    return overloads


def _compared(name: str, operator: Any, *operands: torch.Tensor) -> bool:
    """True if both compute the operator; fails if the types or values differ."""
    try:
        expected = operator(*operands)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
        return False
    if not isinstance(expected, torch.Tensor) or expected.is_complex():
        return False
    if "rand" in name or name in OTHERS:
        return False
    try:
        result = OPERATORS[name](*map(mm.asarray, operands))
    except (MagmathError, TypeError):
        return False
    result = result[0] if isinstance(result, tuple) else result
    types = ", ".join([str(x.dtype) for x in operands])
    assert f"torch.{result.dtype.name}" == str(expected.dtype), f"{operator} of {types}"
    half = expected.dtype in (torch.float16, torch.bfloat16)
    np.testing.assert_allclose(
        np.asarray(mm.astype(result, mm.float64)), expected.double().numpy(),
        rtol=2e-3 if half else 2e-6, atol=1e-6, err_msg=f"{operator} of {types}",
    )  # fmt: skip
    return True


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", OPERANDS)
def test_operators_of_one_tensor_have_the_types_and_values_of_pytorch(dtype: str) -> None:
    x = OPERANDS[dtype]
    assert sum(_compared(name, operator, x) for name, operator in _overloads(1)) > 30


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", OPERANDS)
def test_operators_of_two_tensors_have_the_types_and_values_of_pytorch(dtype: str) -> None:
    """Also of tensors without dimensions, which change the types of others less."""
    compared = 0
    for other in OPERANDS.values():
        x, y = OPERANDS[dtype][:3], other[:3]
        for pair in ((x, y), (x, y[1]), (x[1], y)):
            compared += sum(_compared(name, operator, *pair) for name, operator in _overloads(2))
    assert compared > 200


def test_results_that_are_not_computed_are_named() -> None:
    x = torch.ones(1, 1, 4, 4)
    positions = nn.MaxPool2d(2, return_indices=True)
    with pytest.raises(MagmathError, match="positions of maxima; use the first result alone"):
        from_torch(positions, x)(x)
    projected = nn.LSTM(3, 4, proj_size=2)
    with pytest.raises(MagmathError, match="proj_size"):
        from_torch(projected, torch.ones(5, 1, 3))(torch.ones(5, 1, 3))


def test_gradients_at_limits_are_those_of_pytorch() -> None:
    """Elements at a limit have a gradient."""
    function, (x,) = FUNCTIONS["limits"]
    converted = from_torch(Function(function), x, variable_axes=0)
    own = mm.grad(lambda x: sum([mm.sum(y * y) for y in converted(x)]))(mm.asarray(x))
    x = x.clone().requires_grad_()
    sum([(y * y).sum() for y in function(x)]).backward()
    assert x.grad is not None
    np.testing.assert_allclose(own.numpy(), x.grad.numpy(), rtol=1e-6)


class Padded(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.pad(x, (1, -1)), F.pad(x, (-1, 2, 0, -1)), F.pad(x, (-1, 1), mode="reflect")


def test_elements_and_padding_that_removes_some() -> None:
    x, i = torch.arange(15.0).view(3, 5), torch.tensor([[0, 2], [1, 1]])
    for actual, wanted in zip(from_torch(Elements(), x, i)(x, i), Elements()(x, i), strict=True):
        np.testing.assert_array_equal(actual, wanted)
    y = torch.randn(2, 3, 4)
    for actual, wanted in zip(from_torch(Padded(), y)(y), Padded()(y), strict=True):
        np.testing.assert_array_equal(actual, wanted)


class Resized(nn.Module):
    """One image by several factors."""

    def __init__(self, factors: Sequence[Any], mode: str, corners: bool | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [
                nn.Upsample(scale_factor=factor, mode=mode, align_corners=corners)
                for factor in factors
            ]
        )

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [layer(x) for layer in self.layers]


@pytest.mark.parametrize(
    ("mode", "corners"),
    [
        ("nearest", None),
        ("nearest-exact", None),
        ("bilinear", False),
        ("bilinear", True),
        ("bicubic", False),
        ("bicubic", True),
    ],
)
def test_interpolation_by_factors(mode: str, corners: bool | None) -> None:
    x, factors = torch.randn(2, 3, 6, 5), [1.5, 0.7, 1.3, 2, (2, 1.7)]
    resized = Resized(factors, mode, corners)
    for actual, wanted in zip(from_torch(resized, x)(x), resized(x), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
    for factor, recompute in itertools.product(factors, (False, True)):
        wanted = F.interpolate(
            x,
            scale_factor=factor,
            mode=mode,
            align_corners=corners,
            recompute_scale_factor=recompute,
        )
        actual = mm.nn.functional.interpolate(x.numpy(), None, factor, mode, corners, recompute)
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_nearest_elements_are_those_of_torch_for_all_extents(mode: str) -> None:
    """Rounding in float32 decides where a position is a whole number."""
    for extent in range(1, 40):
        x = torch.arange(float(extent)).reshape(1, 1, extent)
        for new in range(1, 60):
            ours = mm.nn.functional.interpolate(x.numpy(), new, mode=mode)
            np.testing.assert_array_equal(ours, F.interpolate(x, new, mode=mode), f"{extent} {new}")


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear", "bicubic", "antialias"])
@pytest.mark.parametrize("space", [1, 2, 3])
def test_a_factor_that_keeps_an_extent(space: int, mode: str) -> None:
    antialias = mode == "antialias"
    if mode in ("bicubic", "antialias") and space != 2:
        return
    kind = (
        ["linear", "bilinear", "trilinear"][space - 1] if mode in ("linear", "antialias") else mode
    )
    for factors in itertools.product((1.1, 1.3, 2.0), repeat=space):
        x = torch.randn(1, 2, *(2, 3, 4)[:space])
        options = {"scale_factor": list(factors), "mode": kind, "antialias": antialias}
        ours = mm.nn.functional.interpolate(x.numpy(), **options)
        np.testing.assert_allclose(ours, F.interpolate(x, **options), rtol=1e-5, atol=1e-5)


def test_rows_of_padding_have_no_gradient() -> None:
    words, theirs = torch.tensor([[0, 1, 0]]), nn.Embedding(3, 2, padding_idx=0)
    theirs(words).sum().backward()
    converted = from_torch(theirs, words)
    (actual,) = mm.grad(mm.sum(converted(words)), converted.trainable())
    np.testing.assert_array_equal(actual, theirs.weight.grad)
    ours = mm.nn.Embedding(3, 2, padding_idx=0)
    ours(words)
    assert (ours.weight.numpy()[0] == 0).all()
    np.testing.assert_array_equal(mm.grad(mm.sum(ours(words)), ours.weight), theirs.weight.grad)
    with pytest.raises(OptionError, match="padding_idx must be less than count, 3"):
        mm.nn.Embedding(3, 2, padding_idx=3)
    other = from_torch(nn.Embedding(3, 2, scale_grad_by_freq=True), words)
    with pytest.raises(MagmathError, match="scale_grad_by_freq"):
        other(words)


def test_running_moments_of_instances() -> None:
    x, theirs = (
        torch.randn(5, 3, 9) * 3 + 2,
        nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
    )
    ours = from_torch(theirs, x).train()
    for _ in range(3):
        np.testing.assert_allclose(ours(x), theirs.train()(x).detach(), rtol=1e-5, atol=1e-5)
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(ours.state_dict()[name], theirs.state_dict()[name], rtol=1e-5)
    np.testing.assert_allclose(ours.eval()(x), theirs.eval()(x).detach(), rtol=1e-5, atol=1e-5)


def test_parts_with_names_of_methods() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.summary, self.load = nn.Linear(3, 2), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.load(self.summary(x))

    theirs, x = Named(), torch.randn(2, 3)
    ours = from_torch(theirs, x)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    np.testing.assert_allclose(
        pickle.loads(pickle.dumps(ours))(x), theirs(x).detach(), rtol=1e-5, atol=1e-6
    )


class Transformed(nn.Module):
    """A spatial transformer, and a bilinear layer of its two results."""

    def __init__(self, mode: str, padding_mode: str) -> None:
        super().__init__()
        self.mode, self.padding_mode = mode, padding_mode
        self.theta, self.pair = nn.Linear(3, 6), nn.Bilinear(4, 4, 2)

    def forward(self, images: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        grid = F.affine_grid(
            self.theta(features).view(-1, 2, 3), [*images.shape], align_corners=False
        )
        sampled = F.grid_sample(images, grid, self.mode, self.padding_mode, False).mean((1, 2))
        return self.pair(sampled, images.mean((1, 2)))


@pytest.mark.parametrize(
    ("mode", "padding_mode"),
    [("bilinear", "zeros"), ("bicubic", "border"), ("nearest", "reflection")],
)
def test_spatial_transformers_and_bilinear_layers(mode: str, padding_mode: str) -> None:
    theirs = Transformed(mode, padding_mode)
    images, features = torch.randn(2, 1, 4, 4), torch.randn(2, 3)
    ours = from_torch(theirs, images, features)
    np.testing.assert_allclose(
        ours(images, features), theirs(images, features).detach(), rtol=1e-4, atol=1e-5
    )
    theirs(images, features).square().sum().backward()
    actual = mm.grad(mm.sum(ours(images, features) ** 2), ours.trainable())
    for g, p in zip(actual, theirs.parameters(), strict=True):
        np.testing.assert_allclose(g, p.grad, rtol=1e-3, atol=1e-5)


def test_a_missing_example_is_named() -> None:
    with pytest.raises(OptionError, match=r"Linear.forward: .*'input'; .* from_torch\(module, x\)"):
        from_torch(nn.Linear(2, 3))


@pytest.mark.parametrize("mode", ["border", "reflection"])
@pytest.mark.parametrize("align_corners", [False, True])
def test_slopes_of_grids_at_the_borders_are_pytorchs(mode: str, align_corners: bool) -> None:
    image = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype("float32")
    theta = np.float32([[[1, 0, 0], [0, 1, 0]]])
    functional = mm.nn.functional
    points = functional.affine_grid(mm.asarray(theta), image.shape, align_corners).numpy()
    grid = mm.variable("grid", points)
    counterpart = torch.tensor(points, requires_grad=True)
    sampled = functional.grid_sample(mm.asarray(image), grid, "bilinear", mode, align_corners)
    torch.nn.functional.grid_sample(
        torch.tensor(image), counterpart, "bilinear", mode, align_corners
    ).sum().backward()
    slopes = mm.grad(mm.sum(sampled), grid).numpy()
    np.testing.assert_allclose(slopes, counterpart.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_returned", [False, True])
def test_further_results_that_are_used_and_not_computed(is_returned: bool) -> None:
    """The positions of maxima: the error names the operator, and no internal one follows."""

    class Positions(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            y, positions = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
            if is_returned:
                return y, positions
            return torch.nn.functional.max_unpool2d(y, positions, 2)

    images = torch.ones(1, 1, 4, 4)
    module = mm.interop.from_torch(Positions(), images)
    with pytest.raises(UnsupportedError, match="a further result of max_pool2d_with_indices that"):
        module(images.numpy())
