"""`bench precision`: networks in float32, mixed and half precision, against PyTorch's autocast.

Each precision is a pair of systems. PyTorch computes in eager mode, in the faster memory order.
"""

from __future__ import annotations

from collections.abc import Callable

from magmath.bench.case import PEERS, Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.bench.cnn import OWN, network_cases

MIXED = ("mixed-bfloat16", "mixed-float16")
HALF = ("bfloat16", "float16")
"""The types of weights; for inference alone."""
PRECISIONS = ("float32", *MIXED, *HALF)
BATCHES = (16,)
SMALL = 32
"""The largest size of images with which PyTorch's float16 is measured on processors."""
TOLERANCE = 0.05
"""Losses of half precision differ by its rounding."""


def _cases(options: RunOptions) -> list[Case]:
    training = network_cases(options)
    inference = network_cases(options, "infer", BATCHES)
    return [
        *[_named(case, "training") for case in training],
        *[_named(case, "inference") for case in inference],
    ]


def _named(case: Case, purpose: str) -> Case:
    name = f"{case.name}, {purpose}"
    return Case(name, case.parameters, case.work, case.unit, purpose, case.x, TOLERANCE)


def _has_float32_weights(case: Case) -> str:
    """Return why half weights do not apply to a case."""
    return "training has float32 weights" if case.parameters["purpose"] == "train" else ""


def _takes_minutes(case: Case) -> str:
    """Return why PyTorch's float16, ten times as slow as float32 on processors without arithmetic
    of it, is not measured."""
    is_slow = case.parameters["device"] == "cpu" and case.parameters["size"] > SMALL
    return "PyTorch's float16 takes minutes for a round" if is_slow else ""


def _reason(name: str, precision: str) -> Callable[[Case], str]:
    """Return the function of the reason for which a system skips a case."""
    reasons = [_has_float32_weights] if precision in HALF else []
    if name == "PyTorch" and precision in ("float16", "mixed-float16"):
        reasons.append(_takes_minutes)
    return lambda case: next(filter(None, [reason(case) for reason in reasons]), "")


def _systems(options: RunOptions) -> list[System]:
    torch = f"{PEERS}.torch_networks:eager_or_channels_last"
    systems = []
    for name, factory, peer in (("magmath", OWN, ""), ("PyTorch", torch, "torch")):
        for precision in PRECISIONS:
            systems.append(
                System(
                    f"{name} {precision}",
                    factory,
                    peer,
                    settings={"precision": precision},
                    unsupported_reason=_reason(name, precision),
                )
            )
    return systems


def _comparisons(options: RunOptions) -> list[Comparison]:
    same = [
        Comparison(
            f"PyTorch, {precision}",
            f"magmath {precision}",
            (f"PyTorch {precision}",),
            constant_mark(1.0),
        )
        for precision in PRECISIONS
    ]
    gains = [
        Comparison(
            f"float32, {precision}",
            f"magmath {precision}",
            ("magmath float32",),
            constant_mark(None),
        )
        for precision in PRECISIONS[1:]
    ]
    return [*same, *gains]


BENCH = Bench(
    "precision",
    "networks in float32, mixed and half precision",
    "network",
    _cases,
    _systems,
    _comparisons,
    uses_gpus=True,
)
