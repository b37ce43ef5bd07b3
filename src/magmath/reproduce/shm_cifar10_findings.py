"""The statements of SHM-Learn-Dist's scaling experiment next to our runs, and the comparison with
PyTorch's DDP."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from magmath.core.resources import processor_count
from magmath.reproduce.ddp import DdpRun
from magmath.reproduce.section import Finding
from magmath.reproduce.shm_cifar10_training import WORKERS, CifarRun

LOSS_TOLERANCE = 0.02
"""Largest difference of the losses of the first epoch, of their value, that rounding explains."""
UNSTABLE = (
    "training is unstable at this learning rate, so a difference in one step grows in the later "
    "ones. The first difference is a jump of the gradient: where the largest numbers of a pooling "
    "window are equal up to rounding, or the input of a relu is zero up to rounding, the order of "
    "a sum decides"
)
"""Why losses differ although network, initial weights and batches are the same."""
Runs = Mapping[int, CifarRun]
"""The runs by numbers of workers."""
Peers = Mapping[int, DdpRun]
"""The runs of PyTorch's DDP by numbers of processes; none if they were not measured."""


def findings(runs: Runs, peers: Peers) -> list[Finding]:
    """Return the findings, those about DDP if it was measured."""
    report = [_accuracy(runs), _speed(runs), _averages(runs), _transfers(runs)]
    return [*report, _same_losses(runs, peers), _peer_speed(runs, peers)] if peers else report


def counted(count: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count} {noun}{plural * (count != 1)}"


def _accuracy(runs: Runs) -> Finding:
    accuracies = {workers: run.accuracies[-1] for workers, run in runs.items()}
    return Finding.checked(
        "For the same images, more workers end with a lower accuracy",
        "81.8 % with 1 worker, 77.15 % with 2, about 71 % with 4",
        ", ".join(f"{100 * value:.1f} % with {workers}" for workers, value in accuracies.items()),
        accuracies[1] >= accuracies[4] and accuracies[2] >= accuracies[8],
        "the accuracies differ by less than their noise in this short run",
    )


def _speed(runs: Runs) -> Finding:
    seconds = {workers: run.seconds[-1] for workers, run in runs.items()}
    statement, paper = "More workers need less time", "260 s, 138.44 s and 84.2 s with 1, 2 and 4"
    ours = ", ".join(f"{value:.2f} s with {workers}" for workers, value in seconds.items())
    cores = processor_count()
    usable = [workers for workers in runs if workers <= cores]
    if len(usable) < 2:
        return Finding(statement, paper, ours, None, "this machine has one core for all workers")
    return Finding.checked(
        statement,
        paper,
        f"{ours}; the {cores} cores serve at most {usable[-1]} workers",
        seconds[usable[-1]] < seconds[usable[0]],
        "the network is small, or other programs use the cores",
    )


def _averages(runs: Runs) -> Finding:
    seconds = [run.stages["average"] for run in runs.values()]
    growth, linear = seconds[-1] / seconds[0], WORKERS[-1] / WORKERS[0]
    return Finding.checked(
        "The time of averaging grows linearly with the workers",
        "seems to scale linearly (Fig. 6.4)",
        f"{growth:.1f} × from 1 to 8 workers, where linear growth is {linear:.0f} ×",
        seconds == sorted(seconds) and linear / 2 <= growth <= 2 * linear,
        f"{runs[1].parameters:,} parameters are few, and workers that share a core wait for one "
        "another: the time of a command outweighs the sums",
    )


def _transfers(runs: Runs) -> Finding:
    four, eight = runs[4].stages, runs[8].stages
    return Finding.checked(
        "Gathering is faster with 4 workers than with 8, broadcasting is slower",
        "unusual; attributed to MPI's choice of algorithms (Fig. 6.5, 6.6)",
        f"gather {four['gather'] * 1e3:.2f} and {eight['gather'] * 1e3:.2f} ms, broadcast "
        f"{four['broadcast'] * 1e3:.2f} and {eight['broadcast'] * 1e3:.2f} ms with 4 and 8",
        four["gather"] < eight["gather"] and eight["broadcast"] < four["broadcast"],
        "the workers share the memory of one host: each transfer is a copy, whose time depends on "
        "the bytes and on the cores that are free",
    )


def _same_losses(runs: Runs, peers: Peers) -> Finding:
    """Compare the losses of the first epoch; a reason explains later differences."""
    first, last = (_largest_difference(runs, peers, epoch) for epoch in (0, -1))
    return Finding(
        "The losses are those of PyTorch's DDP on the same batches",
        "not compared",
        f"the losses of the first epoch differ by at most {first:.1e} of their value, those of the "
        f"last one by {last:.1e}",
        agrees=first < LOSS_TOLERANCE,
        reason="" if first < LOSS_TOLERANCE and last < LOSS_TOLERANCE else UNSTABLE,
    )


def _largest_difference(runs: Runs, peers: Peers, epoch: int) -> float:
    """Return the largest difference of the losses of an epoch, of their value; NaN if a loss is
    NaN."""
    losses = np.array([[run.losses[epoch], peers[n].losses[epoch]] for n, run in runs.items()])
    return float(np.max(np.abs(losses[:, 0] / losses[:, 1] - 1.0)))


def _peer_speed(runs: Runs, peers: Peers) -> Finding:
    ratios = {n: peers[n].seconds[-1] / run.seconds[-1] for n, run in runs.items()}
    slower = [workers for workers, ratio in ratios.items() if ratio < 1.0]
    return Finding.checked(
        "Training takes no longer than with PyTorch's DDP",
        "not compared",
        "time of DDP over ours: "
        + ", ".join(f"{ratio:.2f} × with {workers}" for workers, ratio in ratios.items()),
        not slower,
        _why_slower(slower),
    )


def _why_slower(workers: list[int]) -> str:
    """Return the reason why DDP is faster with some numbers of workers."""
    cores, numbers = processor_count(), _listed([counted(n, "worker") for n in workers])
    shared = (
        f"; above {cores} workers, several share one of the {cores} cores, and so does the process "
        "that controls them"
        if max(workers, default=0) > cores
        else ""
    )
    return (
        f"DDP is faster with {numbers}{shared}. A step of this network is short, so what else the "
        "machine was running counts"
    )


def _listed(words: list[str]) -> str:
    """Return words as a list in prose."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)
