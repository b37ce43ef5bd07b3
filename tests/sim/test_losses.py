"""Losses and their gradients are those of PyTorch, on any number of workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, OptionError, ShapeError
from magmath.nn import losses

POOLS = [("inline", 1), ("shared", 2), ("messages", 4)]
DRAW = np.random.default_rng(11)
SCORES = DRAW.normal(size=(17, 5)) * 3
VOLUME = DRAW.normal(size=(6, 4, 3, 2))
LABELS = DRAW.integers(0, 5, 17)
PIXELS = DRAW.integers(0, 4, (6, 3, 2))
SHARES = DRAW.dirichlet(np.ones(5), 17)
PIXEL_SHARES = np.moveaxis(DRAW.dirichlet(np.ones(4), (6, 3, 2)), -1, 1).copy()
WEIGHT = DRAW.uniform(0.2, 2, 5)
SIGNS = DRAW.choice([-1.0, 1.0], (17, 5))
BITS = DRAW.integers(0, 2, (17, 5)).astype(float)
PROBABILITIES = DRAW.uniform(0.01, 0.99, (17, 5))
ENDS = np.resize([0.0, 1.0, 1e-13, 1e-11, 0.5, 1 - 1e-14, 1e-300], (17, 5))
FACTORS = DRAW.uniform(0.1, 3, (17, 5))

Call = Callable[..., Any]


def of(function: Call, **settings: Any) -> Call:
    """The function with settings whose arrays are magmath's or torch's, as the outputs are."""

    def call(outputs: Any, targets: Any, reduction: str) -> Any:
        make = torch.from_numpy if isinstance(outputs, torch.Tensor) else mm.asarray
        given = {k: make(v) if isinstance(v, np.ndarray) else v for k, v in settings.items()}
        return function(outputs, targets, reduction=reduction, **given)

    return call


def torch_binary_hinge(y: Any, t: Any, reduction: str) -> Any:
    losses = torch.clamp(1 - y * t, min=0)
    return {"mean": losses.mean, "sum": losses.sum, "none": lambda: losses}[reduction]()


CASES: dict[str, tuple[Call, Call, Any, Any]] = {
    "cross_entropy": (of(losses.cross_entropy), of(F.cross_entropy), SCORES, LABELS),
    "cross_entropy, weight": (
        of(losses.cross_entropy, weight=WEIGHT), of(F.cross_entropy, weight=WEIGHT), SCORES, LABELS
    ),
    "cross_entropy, smooth": (
        of(losses.cross_entropy, label_smoothing=0.2), of(F.cross_entropy, label_smoothing=0.2),
        SCORES, LABELS,
    ),
    "cross_entropy, ignored": (
        of(losses.cross_entropy, ignore_index=2), of(F.cross_entropy, ignore_index=2), SCORES, LABELS
    ),
    "cross_entropy, all": (
        of(losses.cross_entropy, weight=WEIGHT, label_smoothing=0.3, ignore_index=1),
        of(F.cross_entropy, weight=WEIGHT, label_smoothing=0.3, ignore_index=1), SCORES, LABELS,
    ),
    "cross_entropy, pixels": (
        of(losses.cross_entropy, weight=WEIGHT[:4], label_smoothing=0.1, ignore_index=3),
        of(F.cross_entropy, weight=WEIGHT[:4], label_smoothing=0.1, ignore_index=3), VOLUME, PIXELS,
    ),
    "cross_entropy, shares": (of(losses.cross_entropy), of(F.cross_entropy), SCORES, SHARES),
    "cross_entropy, shares, all": (
        of(losses.cross_entropy, weight=WEIGHT, label_smoothing=0.3),
        of(F.cross_entropy, weight=WEIGHT, label_smoothing=0.3), SCORES, SHARES,
    ),
    "cross_entropy, shares of pixels": (
        of(losses.cross_entropy, weight=WEIGHT[:4]), of(F.cross_entropy, weight=WEIGHT[:4]),
        VOLUME, PIXEL_SHARES,
    ),
    "binary_cross_entropy": (
        of(losses.binary_cross_entropy), of(F.binary_cross_entropy), PROBABILITIES, BITS
    ),
    "binary_cross_entropy, weight": (
        of(losses.binary_cross_entropy, weight=FACTORS),
        of(F.binary_cross_entropy, weight=FACTORS), PROBABILITIES, SHARES,
    ),
    "binary_cross_entropy, ends": (
        of(losses.binary_cross_entropy), of(F.binary_cross_entropy), ENDS, BITS
    ),
    "binary_cross_entropy, shares at ends": (
        of(losses.binary_cross_entropy, weight=FACTORS),
        of(F.binary_cross_entropy, weight=FACTORS), ENDS, SHARES,
    ),
    "binary_cross_entropy_with_logits": (
        of(losses.binary_cross_entropy_with_logits), of(F.binary_cross_entropy_with_logits),
        SCORES * 20, BITS,
    ),
    "binary_cross_entropy_with_logits, zeros": (
        of(losses.binary_cross_entropy_with_logits), of(F.binary_cross_entropy_with_logits),
        SCORES * 0, BITS,
    ),
    "binary_cross_entropy_with_logits, weights": (
        of(losses.binary_cross_entropy_with_logits, weight=FACTORS, pos_weight=WEIGHT),
        of(F.binary_cross_entropy_with_logits, weight=FACTORS, pos_weight=WEIGHT), SCORES, SHARES,
    ),
    "mean_squared_error": (of(losses.mean_squared_error), of(F.mse_loss), SCORES, SHARES),
    "mean_absolute_error": (of(losses.mean_absolute_error), of(F.l1_loss), SCORES, SHARES),
    "mean_absolute_error, equal": (of(losses.mean_absolute_error), of(F.l1_loss), SCORES, SCORES),
    "huber": (of(losses.huber), of(F.huber_loss), SCORES, SHARES),
    "huber, delta": (of(losses.huber, delta=2.5), of(F.huber_loss, delta=2.5), SCORES, SHARES),
    "hinge": (of(losses.hinge), of(F.multi_margin_loss), SCORES, LABELS),
    "hinge, settings": (
        of(losses.hinge, margin=0.7, power=2, weight=WEIGHT),
        of(F.multi_margin_loss, margin=0.7, p=2, weight=WEIGHT), SCORES, LABELS,
    ),
    "hinge, binary": (of(losses.hinge), torch_binary_hinge, SCORES, SIGNS),
    "kl_divergence": (of(losses.kl_divergence), of(F.kl_div), np.log(SHARES), PROBABILITIES),
    "kl_divergence, bits": (of(losses.kl_divergence), of(F.kl_div), np.log(SHARES), BITS),
    "kl_divergence, logarithms": (
        of(losses.kl_divergence, log_targets=True), of(F.kl_div, log_target=True),
        np.log(SHARES), np.log(PROBABILITIES),
    ),
}  # fmt: skip


def test_every_loss_is_compared() -> None:
    assert {name.partition(",")[0] for name in CASES} == set(losses.LOSSES)
    assert all(getattr(mm.nn, name) is function for name, function in losses.LOSSES.items())


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize(
    ("reduction", "kind", "workers"),
    [(r, *pool) for r in ("mean", "sum", "none") for pool in POOLS[: 1 if r == "sum" else 3]],
)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_pytorch(
    name: str, reduction: str, kind: str, workers: int
) -> None:
    ours, theirs, outputs, targets = CASES[name]
    y = torch.from_numpy(outputs.copy()).requires_grad_()
    expected = theirs(y, torch.from_numpy(targets), reduction)
    spread = torch.from_numpy(np.cos(np.arange(expected.numel()))).reshape(expected.shape)
    (expected * spread).sum().backward()
    with current(kind, workers):
        x = mm.asarray(outputs, layout=mm.Layout.split(0))
        actual = ours(x, mm.asarray(targets), reduction)
        slope = mm.grad(mm.sum(actual * mm.asarray(spread.numpy())), x)
        np.testing.assert_allclose(
            actual.numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-14
        )
        limit = 1e-8 if name.endswith("ends") else 1e-11  # PyTorch's 1e-12 is a float32
        np.testing.assert_allclose(slope.numpy(), y.grad.numpy(), rtol=limit, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", [name for name in CASES if "," not in name])
def test_other_types_keep_theirs(name: str, dtype: str) -> None:
    ours, _, outputs, targets = CASES[name]
    with current("inline"):
        exact = float(ours(mm.asarray(outputs), mm.asarray(targets), "mean"))
        x = mm.asarray(outputs, dtype=dtype)
        result = ours(x, mm.asarray(targets), "mean")
        assert result.dtype == x.dtype
        limit = {"float32": 1e-5, "float16": 2e-2, "bfloat16": 1e-1}[dtype]
        assert float(result) == pytest.approx(exact, rel=limit)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64"])
@pytest.mark.parametrize("name", CASES)
def test_integers_have_the_loss_of_floating_point_numbers(name: str, dtype: str) -> None:
    """Neither are targets truncated to their type, nor do differences wrap."""
    function, _, outputs, targets = CASES[name]
    integers = np.abs(np.round(outputs)).astype(dtype)
    with current("inline", 1):
        actual = function(mm.asarray(integers), mm.asarray(targets), "sum")
        expected = function(mm.asarray(integers.astype("float64")), mm.asarray(targets), "sum")
        assert actual.dtype.is_floating
        np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("loss", "setting"),
    [
        (losses.binary_cross_entropy, "weight"),
        (losses.binary_cross_entropy_with_logits, "weight"),
        (losses.binary_cross_entropy_with_logits, "pos_weight"),
    ],
)
def test_factors_of_elements_have_the_type_of_the_outputs(
    loss: Call, setting: str, dtype: str
) -> None:
    with current("inline"):
        outputs = mm.asarray(PROBABILITIES, dtype=dtype)
        expected = loss(outputs, BITS, **{setting: mm.asarray(WEIGHT, dtype=dtype)})
        assert expected.dtype == outputs.dtype
        for factors in (WEIGHT, mm.asarray(WEIGHT), WEIGHT.tolist(), WEIGHT.astype(dtype)):
            actual = loss(outputs, BITS, **{setting: factors})
            assert actual.dtype == outputs.dtype
            assert float(actual) == float(expected)
        for number in (2, 2.0, np.float64(2)):
            actual = loss(outputs, BITS, **{setting: number})
            assert actual.dtype == outputs.dtype
            assert float(actual) == float(loss(outputs, BITS, **{setting: np.full(5, 2.0)}))


def test_probabilities_of_zero_and_one_are_finite() -> None:
    with current("inline"):
        p, t = mm.asarray([0.0, 0.0, 1.0, 1.0]), mm.asarray([0.0, 1.0, 0.0, 1.0])
        actual = losses.binary_cross_entropy(p, t, reduction="none")
        x = torch.tensor([0.0, 0, 1, 1], requires_grad=True)
        expected = F.binary_cross_entropy(x, torch.tensor([0.0, 1, 0, 1]), reduction="none")
        expected.sum().backward()
        np.testing.assert_array_equal(actual.numpy(), expected.detach().numpy())
        np.testing.assert_array_equal(mm.grad(mm.sum(actual), p).numpy(), x.grad.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gradients_of_probabilities_of_zero_and_one_are_finite(dtype: str) -> None:
    with current("inline"):
        p = mm.asarray([0.0, 0.0, 1.0, 1.0], dtype=dtype)
        loss = mm.sum(losses.binary_cross_entropy(p, mm.asarray([0.0, 1.0, 0.0, 1.0])))
        slope = mm.astype(mm.grad(loss, p), mm.float32).numpy()
        assert np.isfinite(slope).all()
        np.testing.assert_array_equal(np.sign(slope), [0, -1, 1, 0])


def test_the_divergence_of_negative_shares_is_nan() -> None:
    """As in PyTorch, which shows that targets are not probabilities."""
    shares = np.float32([-0.5, 0.0, 0.5])
    actual = losses.kl_divergence(mm.zeros(3), shares, reduction="none").numpy()
    wanted = F.kl_div(torch.zeros(3), torch.asarray(shares), reduction="none")
    np.testing.assert_allclose(actual, wanted)


def test_the_divergence_of_distributions_is_a_mean_over_the_batch() -> None:
    with current("inline"):
        x, t = mm.asarray(np.log(SHARES)), mm.asarray(PROBABILITIES)
        actual = float(losses.kl_divergence(x, t, reduction="batchmean"))
        expected = F.kl_div(
            torch.from_numpy(np.log(SHARES)), torch.from_numpy(PROBABILITIES), reduction="batchmean"
        )
        assert actual == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("name", losses.LOSSES)
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_fit_takes_losses_by_name(name: str, kind: str, workers: int) -> None:
    targets = {"cross_entropy": LABELS, "hinge": LABELS}.get(name, SHARES)
    activation = {"binary_cross_entropy": "sigmoid"}.get(name, "linear")
    with current(kind, workers):
        net = mm.nn.NeuralNetwork(
            [mm.nn.Dense(5, activation)],
            loss=name,
            optimizer=mm.optim.GradientDescent(0.02),
            seed=1,
        )
        x = SCORES.astype(np.float32)
        first = net.evaluate(x, targets)["loss"]
        whole = losses.LOSSES[name](net.predict(x), mm.asarray(targets))
        assert first == pytest.approx(float(whole), rel=1e-5)
        net.fit(x, targets, batch_size=17, epochs=10)
        assert net.evaluate(x, targets)["loss"] < first


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x, y: losses.cross_entropy(x, y, reduction="avg"), MagmathError,
         "reduction must be .*'avg'"),
        (lambda x, y: losses.cross_entropy(x[0], y), ShapeError, r"outputs must be \(N, classes\)"),
        (lambda x, y: losses.cross_entropy(x, y[:3]), ShapeError,
         r"\(17, 5\) have the classes along axis 1 and need labels \(17,\), was given \(3,\)$"),
        (lambda x, y: losses.cross_entropy(x[None], y[None]), ShapeError,
         r"need labels \(1, 5\), was given \(1, 17\); if the classes are the last axis, use mm.moveaxis"),
        (lambda x, y: losses.cross_entropy(x[:, :, None], y), ShapeError,
         "for one label an image, end the network with Flatten or GlobalAvgPool"),
        (lambda x, y: losses.cross_entropy(x, x[:, :2]), ShapeError, r"targets \(17, 2\) differ"),
        (lambda x, y: losses.cross_entropy(x, x[:, 0]), DTypeError, r"integers .*float64; .*astype"),
        (lambda x, y: losses.cross_entropy(x, y, label_smoothing=2.0), MagmathError, r"\[0, 1\]"),
        (lambda x, y: losses.cross_entropy(x, y, weight=[1.0, 2.0]), ShapeError,
         r"each of the 5 classes, was given \(2,\)"),
        (lambda x, y: losses.cross_entropy(x, mm.softmax(x), ignore_index=0), MagmathError,
         r"ignore_index is a label, was given 0 with probabilities \(17, 5\)"),
        (lambda x, y: losses.mean_squared_error(x, x[:, 0]), ShapeError, r"\(17,\) differ"),
        (lambda x, y: losses.huber(x, x, delta=0), MagmathError, "delta must be positive"),
        (lambda x, y: losses.hinge(x, y, power=3), MagmathError, "power must be 1 or 2"),
    ],
)  # fmt: skip
def test_mistakes_are_named(call: Call, error: type[Exception], message: str) -> None:
    with current("inline"), pytest.raises(error, match=message):
        call(mm.asarray(SCORES), mm.asarray(LABELS))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pos_weight", [None, 2.5])
def test_small_losses_of_bits_keep_their_digits(dtype: str, pos_weight: float | None) -> None:
    """Of outputs that are certain and right; both ends, and the slopes at 0."""
    x = np.asarray([-100, -12, -4, -0.5, 0, 0.5, 4, 12, 100])
    for target in (0.0, 1.0, 0.25):
        outputs = mm.astype(mm.asarray(x), dtype)

        def losses(y: Any, target: float = target) -> Any:
            targets = mm.full(y.shape, target, dtype=y.dtype)
            return mm.nn.binary_cross_entropy_with_logits(
                y, targets, pos_weight=pos_weight, reduction="none"
            )

        factor = 1.0 if pos_weight is None else pos_weight
        expected = (1 - target) * np.logaddexp(x, 0) + factor * target * np.logaddexp(-x, 0)
        rtol = 1e-6 if dtype == "float32" else 0.02
        actual = mm.astype(losses(outputs), mm.float64).numpy()
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=1e-30)
        slopes = mm.astype(mm.grad(lambda y: mm.sum(losses(y)))(outputs), mm.float64).numpy()
        ones = 1 / (1 + np.exp(-x))
        wanted = (1 - target) * ones - factor * target * (1 - ones)
        np.testing.assert_allclose(slopes, wanted, rtol=rtol, atol=rtol)


def test_weights_that_do_not_fit_the_losses_are_errors() -> None:
    y, t = mm.asarray([0.9, 0.5]), mm.ones(2)
    for loss in (mm.nn.binary_cross_entropy, mm.nn.binary_cross_entropy_with_logits):
        with pytest.raises(ShapeError, match=r"weights of shape \(2, 1\) do not broadcast"):
            loss(y, t, weight=np.ones((2, 1)))
    with pytest.raises(OptionError, match="hinge: weight is a factor of each class"):
        mm.nn.hinge(y, t, weight=[1.0, 2.0])
