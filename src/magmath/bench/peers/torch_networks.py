"""PyTorch trains and runs the convolutional networks: eager, channels-last, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from magmath.bench.peers.network_layers import (
    Conv,
    Dense,
    LocalNorm,
    Norm,
    Operations,
    Pooling,
    Residual,
    forward,
)
from magmath.bench.peers.network_problem import NetworkProblem
from magmath.bench.peers.service import Contestant, core_count
from magmath.bench.peers.torch import wait_for
from magmath.bench.peers.training import PeerTrainer, TrainingContestant

HALF_TYPES = {
    f"{prefix}{name}": getattr(torch, name)
    for prefix in ("mixed-", "")
    for name in ("bfloat16", "float16")
}
Variants = dict[str, Callable[[], PeerTrainer]]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "relu6": F.relu6,
}


def eager() -> Contestant:
    """Eager mode, images channels first."""
    return _contestant(lambda problem: {"eager": lambda: network(problem)})


def channels_last() -> Contestant:
    """Eager mode, images channels last."""
    return _contestant(lambda problem: {"eager": lambda: network(problem, last=True)})


def eager_or_channels_last() -> Contestant:
    """Eager mode, in the faster of both memory orders; for float16 on processors, whose other order
    takes seven times as long, channels last."""

    def variants(problem: NetworkProblem) -> Variants:
        last: Variants = {"channels last": lambda: network(problem, last=True)}
        if problem.precision.endswith("float16") and not problem.precision.endswith("bfloat16"):
            return last
        return {"channels first": lambda: network(problem)} | last

    return _contestant(variants)


def compiled() -> Contestant:
    """`torch.compile` of the model, in training with the loss, in both memory orders."""
    return _contestant(_compiled)


def _contestant(variants: Callable[[NetworkProblem], Variants]) -> Contestant:
    torch.set_num_threads(core_count())
    return TrainingContestant({"torch": torch.__version__}, NetworkProblem.of, variants)


def _compiled(problem: NetworkProblem) -> Variants:
    torch.compiler.reset()
    return {
        "channels first": lambda: network(problem, compiled=True),
        "channels last": lambda: network(problem, last=True, compiled=True),
    }


class TorchOperations(Operations):
    """PyTorch's operations; `statistics`: the running mean and variance of each batch norm."""

    def __init__(self, training: bool, statistics: dict[int, tuple[Tensor, Tensor]]) -> None:
        self.training = training
        self._statistics = statistics
        self._norms = 0

    def conv(self, x: Any, weight: Any, bias: Any, layer: Conv) -> Any:
        y = F.conv2d(x, weight, bias, layer.stride, layer.padding, groups=layer.groups)
        return ACTIVATIONS[layer.activation](y)

    def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
        mean, variance = self._statistics[self._norms]
        self._norms += 1
        y = F.batch_norm(x, mean, variance, scale, shift, self.training, 0.1, layer.epsilon)
        return ACTIVATIONS[layer.activation](y)

    def pool(self, x: Any, layer: Pooling) -> Any:
        pool = F.max_pool2d if layer.kind == "max" else F.avg_pool2d
        return pool(x, layer.kernel, layer.stride, layer.padding, ceil_mode=layer.ceil)

    def local_norm(self, x: Any, layer: LocalNorm) -> Any:
        return F.local_response_norm(x, layer.size)

    def flatten(self, x: Any) -> Any:
        return x.flatten(1)

    def global_pool(self, x: Any) -> Any:
        return x.mean((2, 3))

    def dense(self, x: Any, weight: Any, bias: Any, layer: Dense) -> Any:
        y = F.linear(x, weight, bias)
        return ACTIVATIONS[layer.activation](y)

    def join(self, xs: list[Any]) -> Any:
        return torch.cat(xs, 1)

    def add(self, x: Any, y: Any, layer: Residual) -> Any:
        return ACTIVATIONS[layer.activation](x + y)


class _Network(PeerTrainer):
    """The weights, the batch and the loss of a problem."""

    training: bool

    def __init__(self, problem: NetworkProblem, last: bool = False, compiled: bool = False) -> None:
        self.problem = problem
        order = torch.channels_last if last else torch.contiguous_format
        images, labels = problem.data()
        device = problem.device
        self.half = HALF_TYPES.get(problem.precision)
        mixed = problem.precision.startswith("mixed")
        self.autocast = partial(torch.autocast, device, self.half, mixed)
        self.images = torch.from_numpy(images).to(device).contiguous(memory_format=order)
        self.labels = torch.from_numpy(labels).to(device)
        self.statistics = _statistics(problem)
        self.weights = []
        for weight in self._drawn():
            if weight.ndim == 4:
                weight = weight.contiguous(memory_format=order)
            self.weights.append(weight.clone().requires_grad_(self.training))
        if problem.is_half:
            self.images = self.images.to(self.half)
            self.weights = [w.to(self.half) for w in self.weights]
            self.statistics = {
                n: (mean.to(self.half), variance.to(self.half))
                for n, (mean, variance) in self.statistics.items()
            }
        self.outputs = self._outputs
        if compiled:  # on a GPU with CUDA graphs
            self.outputs = torch.compile(
                self._outputs, mode=None if device == "cpu" else "reduce-overhead"
            )

    def _outputs(self) -> Tensor:
        ops = TorchOperations(self.training, self.statistics)
        with self.autocast():
            result: Tensor = forward(self.problem.layers, self.images, iter(self.weights), ops)
        return result

    def _drawn(self) -> Iterator[Tensor]:
        """Return the initial weights; those of dense layers as PyTorch stores them."""
        for array in self.problem.weights():
            weight = torch.from_numpy(array).to(self.problem.device)
            yield weight.T.contiguous() if weight.ndim == 2 else weight

    @torch.no_grad()
    def reset(self) -> None:
        for weight, array in zip(self.weights, self._drawn(), strict=True):
            weight.copy_(array)

    @torch.no_grad()
    def loss(self) -> float:
        return float(F.cross_entropy(self._outputs().float(), self.labels))


@final
class TorchTrainer(_Network):
    """Steps of fused SGD on the batch."""

    training = True

    def __init__(self, problem: NetworkProblem, last: bool = False, compiled: bool = False) -> None:
        super().__init__(problem, last, compiled)
        self.optimizer = torch.optim.SGD(self.weights, lr=problem.learning_rate, fused=True)
        self.scaler = torch.amp.GradScaler(
            problem.device, enabled=problem.precision == "mixed-float16"
        )

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            self.optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(self.outputs().float(), self.labels)
            torch.autograd.backward(self.scaler.scale(loss))
            self.scaler.step(self.optimizer)
            self.scaler.update()
        wait_for(self.problem.device)


@final
class TorchInference(_Network):
    """Outputs of the batch."""

    training = False

    def train(self, epochs: int) -> None:
        with torch.inference_mode():
            for _ in range(epochs):
                self.outputs()
        wait_for(self.problem.device)


def network(problem: NetworkProblem, last: bool = False, compiled: bool = False) -> PeerTrainer:
    """Return the formulation that trains or runs the problem's network."""
    make = TorchTrainer if problem.purpose == "train" else TorchInference
    return make(problem, last, compiled)


def _statistics(problem: NetworkProblem) -> dict[int, tuple[Tensor, Tensor]]:
    """Return running means 0 and variances 1 for the batch norms, which count themselves."""
    statistics: dict[int, tuple[Tensor, Tensor]] = {}

    @final
    class Count(TorchOperations):
        def norm(self, x: Any, scale: Any, shift: Any, layer: Norm) -> Any:
            channels = x.shape[1]
            device = problem.device
            statistics[len(statistics)] = (
                torch.zeros(channels, device=device),
                torch.ones(channels, device=device),
            )
            return x

    shape = (1, 3, problem.size, problem.size)
    weights = [torch.from_numpy(w.T if w.ndim == 2 else w).to("meta") for w in problem.weights()]
    forward(problem.layers, torch.empty(shape, device="meta"), iter(weights), Count(False, {}))
    return statistics
