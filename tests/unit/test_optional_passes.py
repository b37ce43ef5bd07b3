"""Each optional pass changes the program that is made for it, and can be omitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import magmath as mm
from magmath.core.optional_passes import OPTIONAL_PASSES
from magmath.core.options import DEBUG
from magmath.errors import MemoryLimitError

MEGABYTE = 1 << 20


def merge_equal(x: Any) -> Any:
    return mm.sqrt(x) * mm.sqrt(x)


def pooled_masks(x: Any) -> Any:
    images = _images(x)
    return mm.grad(mm.sum(mm.nn.MaxPool2d(2)(mm.relu(images)) ** 2), images)


def join_sums(x: Any) -> Any:
    return mm.nn.BatchNorm()(mm.tanh(x))


def share_margins(x: Any) -> Any:
    return mm.roll(x, 1, axis=0) + mm.roll(x, -1, axis=0)


def share_halos(x: Any) -> Any:
    rows = mm.tile(x, (8, 8)).redistribute(mm.Layout.split(0)) + 1
    return rows[2:] - 2 * rows[1:-1] + rows[:-2]


def fold_epilogues(x: Any) -> Any:
    return mm.relu(x @ x.T + mm.tanh(x[0, :1]))


def reduce_in_blocks(x: Any) -> Any:
    return mm.sum(mm.sqrt(mm.arange(2 * MEGABYTE, dtype="float32") + x[0, 0]))


def in_place(x: Any) -> Any:
    return mm.sin(mm.sqrt(x @ x.T)) @ x


def _images(x: Any) -> Any:
    return mm.reshape(x, (2, 32, 16, 16))


def assign_memory_orders(x: Any) -> Any:
    convolution = mm.nn.Conv2d(32, 3, padding=1)
    return mm.sum(convolution(mm.tanh(convolution(mm.tanh(_images(x))))), axis=(2, 3))


def hoisting(x: Any) -> Any:
    return x @ mm.tanh(WEIGHTS["w"])


def rematerialize(x: Any) -> Any:
    def loss() -> Any:
        y = x
        for _ in range(24):
            y = mm.tanh(y @ WEIGHTS["w"])
        return mm.sum(y)

    return mm.grad(loss(), WEIGHTS["w"])


WEIGHTS: dict[str, Any] = {}
WORKERS = {"share-halos": 2}
LIMITS = {"reduce-in-blocks": 16 * MEGABYTE, "rematerialize": 5 * MEGABYTE // 2}
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    f.__name__.replace("_", "-"): f
    for f in (
        merge_equal, pooled_masks, join_sums, share_margins, share_halos, fold_epilogues,
        reduce_in_blocks, in_place, assign_memory_orders, hoisting, rematerialize,
    )
}  # fmt: skip


def described(name: str) -> tuple[Any, Any]:
    """The program that is made for a pass, and its results."""
    pool: Any = {"launcher": "threads"} if name in WORKERS else {}
    workers, limit = WORKERS.get(name, 0), LIMITS.get(name)
    with mm.init(workers, device="cpu", seed=1, memory_limit=limit, **pool):
        x = mm.asarray(np.random.default_rng(0).uniform(0.1, 1, (128, 128)).astype(np.float32))
        WEIGHTS["w"] = mm.variable("w", np.ones((128, 128), np.float32))
        function = mm.compile(PROGRAMS[name])
        try:
            results = function(x)
        except MemoryLimitError:
            return "too large", None
        program = function.programs()[0].program
        values = results if isinstance(results, tuple) else (results,)
        return program, [value.numpy() for value in values]


def test_every_pass_has_a_program() -> None:
    assert [*PROGRAMS] == [*OPTIONAL_PASSES]


@pytest.mark.parametrize("name", OPTIONAL_PASSES)
def test_programs_are_others_without_a_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, expected = described(name)
    monkeypatch.setenv(DEBUG.name, f"without={name}")
    other, actual = described(name)
    assert other != usual
    if actual is not None:
        for one, same in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, same, rtol=1e-5, atol=1e-5)
