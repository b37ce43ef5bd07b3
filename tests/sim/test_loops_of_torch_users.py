"""Training loops as users of PyTorch write them end with PyTorch's weights: accumulated gradients,
two optimizers, schedules that continue from files, averaged weights, freezing, clipping."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import magmath as mm
from engines import current
from magmath.optim import schedules

DRAW = np.random.default_rng(0)
X, LABELS = DRAW.normal(size=(64, 6)), DRAW.integers(0, 3, 64)
BATCH = 16
Compiled = Callable[[Callable[..., Any]], Callable[..., Any]]


@pytest.fixture(params=[("inline", 1), ("shared", 2), ("eager", 2)], ids=lambda kind: str(kind[0]))
def _pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        mm.set_default_dtype("float64")
        try:
            yield
        finally:
            mm.set_default_dtype("float32")


@pytest.fixture(params=[False, True], ids=["eager", "compiled"])
def compiled(request: pytest.FixtureRequest) -> Compiled:
    return mm.compile if request.param else lambda step: step


pytestmark = pytest.mark.usefixtures("_pool")


def counterparts(seed: int = 1, outputs: int = 3) -> tuple[Any, Any]:
    """A network, and PyTorch's with the same weights."""
    torch.manual_seed(seed)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, outputs)
    ).double()
    ours = mm.nn.Sequential(
        mm.nn.Dense(8), mm.nn.BatchNorm(), mm.nn.Activation("tanh"), mm.nn.Dense(outputs)
    ).build((4, 6))
    ours.load_state_dict(_state(theirs), strict=False)
    return ours, theirs


def _state(theirs: Any) -> dict[str, Any]:
    """The state of PyTorch's network by our names."""
    return {
        name.replace("running_var", "running_variance"): value.T if value.ndim == 2 else value
        for name, value in theirs.state_dict().items()
        if "num_batches" not in name
    }


def check(ours: Any, theirs: Any) -> None:
    """Compare all weights, running statistics, and the outputs in evaluation mode."""
    actual, expected = ours.state_dict(), _state(theirs)
    assert expected.keys() <= actual.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name].numpy(), value.numpy(), 1e-7, 1e-10, err_msg=name)
    outputs = copy.deepcopy(theirs).eval()(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(copy.deepcopy(ours).eval()(X).numpy(), outputs, 1e-7, 1e-9)


def batches(steps: int, size: int = BATCH) -> Iterator[tuple[Any, Any, Any, Any]]:
    for start in (i * size % len(X) for i in range(steps)):
        x, y = X[start : start + size], LABELS[start : start + size]
        yield x, y, torch.tensor(x), torch.tensor(y)


def cross_entropy_step(ours: Any, optimizer: Any) -> Callable[..., Any]:
    def step(x: Any, y: Any) -> Any:
        loss, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(ours(x), y), ours.trainable()
        )
        optimizer.update(gradients)
        return loss

    return step


def torch_step(theirs: Any, optimizer: Any, x: Any, y: Any) -> float:
    optimizer.zero_grad()
    loss = functional.cross_entropy(theirs(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def test_accumulated_gradients_clipped_by_their_norm(compiled: Compiled) -> None:
    ours, theirs = counterparts()
    rule, their_rule = mm.optim.Adam(1e-2), torch.optim.Adam(theirs.parameters(), 1e-2)
    sums = {p: mm.variable(f"sum.{p.name}", mm.zeros(p.shape)) for p in ours.parameters()}

    @compiled
    def accumulate(x: Any, y: Any) -> Any:
        loss, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(ours(x), y) / 4, ours.trainable()
        )
        for p, gradient in gradients.items():
            sums[p] += gradient
        return loss

    @compiled
    def apply() -> Any:
        squares = [mm.sum(gradient * gradient) for gradient in sums.values()]
        norm = mm.sqrt(mm.sum(mm.stack(squares)))
        factor = mm.minimum(0.05 / (norm + 1e-6), 1.0)
        rule.update({p: factor * gradient for p, gradient in sums.items()})
        for gradient in sums.values():
            gradient.assign(mm.zeros(gradient.shape))
        return norm

    for i, (x, y, u, v) in enumerate(batches(24, 8)):
        loss = functional.cross_entropy(theirs(u), v) / 4
        loss.backward()
        assert float(accumulate(x, y)) == pytest.approx(loss.item(), rel=1e-8)
        if i % 4 == 3:
            norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
            their_rule.step()
            their_rule.zero_grad()
            assert float(apply()) == pytest.approx(norm.item(), rel=1e-8)
    check(ours, theirs)


def test_two_networks_with_their_own_optimizers(compiled: Compiled) -> None:
    """The generator and the discriminator of an adversarial network."""
    (maker, their_maker), (judge, their_judge) = counterparts(1, 6), counterparts(2, 1)
    rules = mm.optim.Adam(2e-3, beta1=0.5), mm.optim.Adam(1e-3, beta1=0.5)
    theirs = [
        torch.optim.Adam(net.parameters(), rate, betas=(0.5, 0.999))
        for net, rate in ((their_maker, 2e-3), (their_judge, 1e-3))
    ]
    score = mm.nn.binary_cross_entropy_with_logits
    their_score = functional.binary_cross_entropy_with_logits
    one, zero = torch.ones((BATCH, 1)).double(), torch.zeros((BATCH, 1)).double()

    @compiled
    def step(x: Any, noise: Any) -> Any:
        made = mm.stop_gradient(maker(noise))

        def judged() -> Any:
            real, fake = judge(x), judge(made)
            return score(real, mm.ones(real.shape)) + score(fake, mm.zeros(fake.shape))

        first, gradients = mm.value_and_grad(judged, judge.trainable())
        rules[1].update(gradients)

        def fooled() -> Any:
            fake = judge(maker(noise))
            return score(fake, mm.ones(fake.shape))

        second, gradients = mm.value_and_grad(fooled, maker.trainable())
        rules[0].update(gradients)
        return first, second

    draw = np.random.default_rng(5)
    for x, _, u, _ in batches(12):
        noise = draw.normal(size=(BATCH, 6))
        theirs[1].zero_grad()
        made = their_maker(torch.tensor(noise)).detach()
        first = their_score(their_judge(u), one) + their_score(their_judge(made), zero)
        first.backward()
        theirs[1].step()
        theirs[0].zero_grad()
        second = their_score(their_judge(their_maker(torch.tensor(noise))), one)
        second.backward()
        theirs[0].step()
        actual = [float(loss) for loss in step(x, noise)]
        np.testing.assert_allclose(actual, [first.item(), second.item()], rtol=1e-7)
    check(maker, their_maker)
    check(judge, their_judge)


def test_warm_up_and_cosine_continue_from_files(compiled: Compiled, tmp_path: Path) -> None:
    ours, theirs = counterparts()

    def rule() -> Any:
        rate = schedules.WarmUp(schedules.Cosine(0.05, 12, end=1e-3), 5, start_factor=0.2)
        return mm.optim.AdamW(rate, weight_decay=0.1, clip_norm=0.5)

    optimizer, their_rule = rule(), torch.optim.AdamW(theirs.parameters(), 0.05, weight_decay=0.1)
    parts = [
        torch.optim.lr_scheduler.LinearLR(their_rule, 0.2, 1.0, 5),
        torch.optim.lr_scheduler.CosineAnnealingLR(their_rule, 12, 1e-3),
    ]
    schedule = torch.optim.lr_scheduler.SequentialLR(their_rule, parts, [5])
    step = compiled(cross_entropy_step(ours, optimizer))
    for i, (x, y, u, v) in enumerate(batches(16)):
        if i in (3, 8):
            ours.save(tmp_path / "weights.safetensors")
            state = {name: value.numpy() for name, value in optimizer.state_dict().items()}
            (tmp_path / "optimizer").write_bytes(pickle.dumps(state))
            ours, optimizer = counterparts(9)[0], rule()
            ours.load(tmp_path / "weights.safetensors")
            optimizer.load_state_dict(pickle.loads((tmp_path / "optimizer").read_bytes()))
            step = compiled(cross_entropy_step(ours, optimizer))
        their_rule.zero_grad()
        loss = functional.cross_entropy(theirs(u), v)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        their_rule.step()
        schedule.step()
        assert float(step(x, y)) == pytest.approx(loss.item(), rel=1e-7)
    assert optimizer.rates(optimizer.steps)[0] == pytest.approx(schedule.get_last_lr()[0])
    check(ours, theirs)


def test_an_exponential_average_of_the_weights(compiled: Compiled) -> None:
    ours, theirs = counterparts()
    average, their_average = copy.deepcopy(ours), copy.deepcopy(theirs)
    settings: dict[str, Any] = {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}
    rule, their_rule = (
        mm.optim.Momentum(0.05, **settings),
        torch.optim.SGD(theirs.parameters(), 0.05, **settings),
    )
    train = cross_entropy_step(ours, rule)

    @compiled
    def step(x: Any, y: Any) -> Any:
        loss = train(x, y)
        for mean, p in zip(average.parameters(), ours.parameters(), strict=True):
            mean.assign(0.9 * mean + 0.1 * p)
        for mean, p in zip(average.buffers(), ours.buffers(), strict=True):
            mean.assign(p)
        return loss

    for i, (x, y, u, v) in enumerate(batches(10)):
        assert float(step(x, y)) == pytest.approx(torch_step(theirs, their_rule, u, v), rel=1e-7)
        with torch.no_grad():
            pairs = zip(their_average.parameters(), theirs.parameters(), strict=True)
            for theirs_mean, q in pairs:
                theirs_mean.mul_(0.9).add_(q, alpha=0.1)
            for theirs_mean, q in zip(their_average.buffers(), theirs.buffers(), strict=True):
                theirs_mean.copy_(q)
        if i % 4 == 3:
            check(average, their_average)
    ours.load_state_dict(average.state_dict())
    check(ours, their_average)


def test_layers_are_frozen_and_unfrozen_during_training(compiled: Compiled) -> None:
    """With a mode of one layer, another rate, and a rate of a group."""
    ours, theirs = counterparts()
    rule = mm.optim.Adam(1e-2, groups={"0.*": {"learning_rate": 1e-3}})
    rest = [*theirs[1].parameters(), *theirs[3].parameters()]
    groups = [{"params": theirs[0].parameters(), "lr": 1e-3}, {"params": rest}]
    their_rule = torch.optim.Adam(groups, 1e-2)
    step = compiled(cross_entropy_step(ours, rule))
    for i, (x, y, u, v) in enumerate(batches(20)):
        if i in (0, 12):
            ours.freeze("0")
            theirs[0].requires_grad_(False)
        if i == 6:
            ours.unfreeze()
            theirs.requires_grad_(True)
        if i == 8:
            ours[1].eval()
            theirs[1].eval()
        if i == 14:
            ours.train()
            theirs.train()
        if i == 16:
            rule.learning_rate = their_rule.param_groups[1]["lr"] = 5e-3
        assert float(step(x, y)) == pytest.approx(torch_step(theirs, their_rule, u, v), rel=1e-7)
    check(ours, theirs)
