"""Chains of element-wise operations take the buffers that their operations no longer read."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from executors import use_native_code


def temporary_bytes(array: mm.Array) -> int:
    """Return the bytes of the temporaries of an array's program."""
    text = str(mm.explain(array))
    return int(text.split(" bytes of temporaries")[0].rsplit(" ", 1)[1].replace(",", ""))


@pytest.mark.parametrize("kind", ["planned", "shared"])
def test_a_long_chain_needs_few_buffers(kind: str) -> None:
    counts = []
    with current(kind, 2 if kind == "shared" else 1):
        for length in (5, 50):
            a = mm.asarray(np.ones(40_000))
            for _ in range(length):
                a = a * 1.01 + mm.sqrt(a)
            counts.append(temporary_bytes(a))
            expected = np.ones(40_000)
            for _ in range(length):
                expected = expected * 1.01 + np.sqrt(expected)
            np.testing.assert_allclose(a, expected, rtol=1e-12)
    assert counts[0] == counts[1]


def random_chain(lib: Any, choice: Random, arrays: list[Any], length: int) -> list[Any]:
    """Return the last results of random operations on results before, some of which read parts, or
    other elements than their own."""
    results = [*arrays]
    for _ in range(length):
        x, y = (results[-choice.randint(1, min(6, len(results)))] for _ in range(2))
        results.append(
            choice.choice(
                [
                    lambda x, y: x + y,
                    lambda x, y: x * 0.5 - y,
                    lambda x, y: lib.tanh(x),
                    lambda x, y: lib.where(x > y, x, 0.25 * y),
                    lambda x, y: lib.flip(x) + y,
                    lambda x, y: lib.roll(x, 3) * 0.5,
                    lambda x, y: lib.concatenate([x[7:], y[:7]]),
                    lambda x, y: (x > 0) * lib.abs(y),
                    lambda x, y: x - lib.mean(y),
                ]
            )(x, y)
        )
    return [*results[-3:], results[len(results) // 2]]


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_random_chains(seed: int, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if native:
        use_native_code(monkeypatch)
    workers = 1 if native else 1 + seed % 3
    with current("shared" if workers > 1 else "planned", workers):
        choice = Random(seed)
        values = [np.random.default_rng(seed + i).normal(size=(30, 5)) for i in range(3)]
        for length in (8, 40):
            state = choice.getstate()
            expected = random_chain(np, choice, values, length)
            choice.setstate(state)
            arrays = [mm.asarray(x) for x in values]

            @mm.compile
            def chain(*arrays: Any, state: Any = state, length: int = length) -> Any:
                drawn = Random()
                drawn.setstate(state)
                return random_chain(mm, drawn, [*arrays], length)

            for _ in range(2):
                for ours, theirs in zip(chain(*arrays), expected, strict=True):
                    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
