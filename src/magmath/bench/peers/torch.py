"""PyTorch: eager, with plain and fused SGD, and `torch.compile` in the ways that suit training."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from magmath.bench.peers.problem import Problem
from magmath.bench.peers.service import Contestant, core_count
from magmath.bench.peers.training import PeerTrainer, TrainingContestant

Builders = dict[str, Callable[[], PeerTrainer]]


def eager() -> Contestant:
    """Return the usual loop, with every implementation of SGD that PyTorch has."""
    return TrainingContestant(_versions(), Problem.of, _eager_variants)


def compiled() -> Contestant:
    """`torch.compile` of the model with its loss, and of the whole step as one graph."""
    return TrainingContestant(_versions(), Problem.of, _compiled_variants)


def _versions() -> dict[str, str]:
    torch.set_num_threads(core_count())
    return {"torch": torch.__version__}


def _eager_variants(problem: Problem) -> Builders:
    return {
        "plain SGD": lambda: LoopTrainer(problem, optimizer="plain"),
        "foreach SGD": lambda: LoopTrainer(problem, optimizer="foreach"),
        "fused SGD": lambda: LoopTrainer(problem, optimizer="fused"),
    }


def _compiled_variants(problem: Problem) -> Builders:
    torch.compiler.reset()
    if problem.device != "cpu":  # with CUDA graphs
        return {
            "model and loss": lambda: LoopTrainer(problem, compiler="reduce-overhead"),
            "whole step": lambda: WholeStepTrainer(problem, "reduce-overhead"),
        }
    return {
        "model and loss": lambda: LoopTrainer(problem, compiler="default"),
        "model and loss, max-autotune": lambda: LoopTrainer(problem, compiler="max-autotune"),
        "whole step": lambda: WholeStepTrainer(problem, "default"),
        "whole step, max-autotune": lambda: WholeStepTrainer(problem, "max-autotune"),
    }


@final
class TorchMlp(nn.Module):
    """The problem's MLP with its loss."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        sizes = problem.sizes
        layers = []
        for inputs, outputs in pairwise(sizes):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy of images."""
        return nn.functional.cross_entropy(self.layers(images), labels)


def tensors(problem: Problem) -> tuple[Tensor, Tensor]:
    """Return the images and labels on the device of the problem."""
    images, labels = (torch.from_numpy(part).to(problem.device) for part in problem.data())
    return images, labels


def wait_for(device: str) -> None:
    """Wait until a device has computed."""
    if device == "cuda":
        torch.cuda.synchronize()


@torch.no_grad()
def set_weights(network: TorchMlp, problem: Problem) -> None:
    """Copy the initial weights of the problem into a network."""
    linear = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    for layer, (matrix, bias) in zip(linear, problem.weights(), strict=True):
        layer.weight.copy_(torch.from_numpy(matrix).T)
        layer.bias.copy_(torch.from_numpy(bias))


@final
class LoopTrainer(PeerTrainer):
    """The training loop of PyTorch's tutorials."""

    def __init__(
        self, problem: Problem, optimizer: str = "fused", compiler: str | None = None
    ) -> None:
        self.problem = problem
        self.images, self.labels = tensors(problem)
        self.network = TorchMlp(problem).to(problem.device)
        self.reset()
        self.optimizer = torch.optim.SGD(
            self.network.parameters(),
            lr=problem.learning_rate,
            foreach=optimizer == "foreach",
            fused=optimizer == "fused",
        )
        self.forward = torch.compile(self.network, mode=compiler) if compiler else self.network

    def reset(self) -> None:
        set_weights(self.network, self.problem)

    def train(self, epochs: int) -> None:
        batch = self.problem.batch
        for _ in range(epochs):
            for start in range(0, self.problem.images, batch):
                self.optimizer.zero_grad(set_to_none=True)
                part = slice(start, start + batch)
                self.forward(self.images[part], self.labels[part]).backward()
                self.optimizer.step()
        wait_for(self.problem.device)

    @torch.no_grad()
    def loss(self) -> float:
        return float(self.network(self.images, self.labels))


@final
class WholeStepTrainer(PeerTrainer):
    """Forward, backward and update traced as one graph, so that they can be fused."""

    def __init__(self, problem: Problem, compiler: str) -> None:
        self.problem = problem
        self.images, self.labels = tensors(problem)
        self.network = TorchMlp(problem).to(problem.device)
        self.reset()
        self.parameters = {name: p.detach() for name, p in self.network.named_parameters()}
        self.step = torch.compile(self._step, mode=compiler)

    def _step(self, parameters: dict[str, Tensor], images: Tensor, labels: Tensor) -> None:
        def loss(parameters: dict[str, Tensor]) -> Tensor:
            result: Tensor = functional_call(self.network, parameters, (images, labels))
            return result

        for name, gradient in grad(loss)(parameters).items():
            parameters[name].sub_(gradient, alpha=self.problem.learning_rate)

    def reset(self) -> None:
        set_weights(self.network, self.problem)

    @torch.no_grad()
    def train(self, epochs: int) -> None:
        batch = self.problem.batch
        for _ in range(epochs):
            for start in range(0, self.problem.images, batch):
                part = slice(start, start + batch)
                self.step(self.parameters, self.images[part], self.labels[part])
        wait_for(self.problem.device)

    @torch.no_grad()
    def loss(self) -> float:
        return float(self.network(self.images, self.labels))
