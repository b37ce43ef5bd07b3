"""Fused kernels of GPUs: which instructions join, and what they compute, in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from magmath.codegen import triton_kernels
from magmath.ops import OPERATIONS

CHECKED = """
import numpy as np, torch
import magmath as mm
from magmath.executor import fused_kernels, tiers
from magmath.program.instructions import Call

found = []

def run(self, binding):
    program, step = binding.tensors.program, binding.step
    binding.prologue.run()
    runs, begin = [], program.prologue
    for position in range(begin, len(program.instructions) + 1):
        if position == len(program.instructions) or not isinstance(program.instructions[position], Call):
            runs.append(range(begin, position))
            begin = position + 1
    position = program.prologue
    for kernel in fused_kernels.fused_kernels(binding.tensors, runs):
        step.run_some(range(position, kernel.positions.start))
        assert not kernel._kernel._built.exception(), kernel._kernel._built.exception()
        assert kernel.verify(lambda: step.run_some(kernel.positions)), kernel._kernel.source
        found.append((len(kernel.positions), len(kernel._read), len(kernel._written)))
        position = kernel.positions.stop
    step.run_some(range(position, len(program.instructions)))
    return binding.emitted_now()

tiers.Tiers.run = run
mm.init(workers=0, device="cpu", threads=1)
rng = np.random.default_rng(0)

def check(function, *shapes, kind="float32", joined=None):
    arrays = [rng.standard_normal(shape).astype(kind) for shape in shapes]
    found.clear()
    with np.errstate(all="ignore"):
        made = mm.compile(function)(*map(mm.asarray, arrays))
        mm.evaluate(*(made if isinstance(made, tuple) else (made,)))
    if joined is not None:
        assert found == joined, (found, joined)

for kind in ("float32", "float64"):
    check(lambda x, y: (x * 2.5 + y) * x - y, (40, 33), (40, 33), kind=kind, joined=[(4, 3, 1)])
    check(lambda x, y: mm.maximum(x, 0.5) / (y + 1) - x, (40, 33), (33,), kind=kind)
    check(lambda x, y: mm.where(x > y, x * y, -x), (7, 1, 5), (4, 5), kind=kind)
    check(lambda x, y: mm.sqrt(x * x + 1) * y, (70, 40), (70, 1), kind=kind)
    check(lambda x: mm.relu(x) + mm.abs(x) * (1 / (x + 3)), (3000,), kind=kind)
    check(lambda x, y: (x.T * 2 + y).T * x, (30, 20), (20, 30), kind=kind)
    check(lambda x, y: mm.permute_dims(x, (2, 0, 1)) * 2 + y, (3, 4, 5), (4,), kind=kind)
    check(lambda x, y: ((x + y) * 2, (x - y) * 3), (30,), (30,), kind=kind)
    check(lambda x: (x[1:] * 2 - x[:-1]) + x[1:], (300, 7), kind=kind)
    check(lambda x: mm.sum(x * 2 + 1, axis=0) * 3 + 1, (30, 20), kind=kind)
check(lambda x, y: (x * 3 + y) // 1 * x - (y + 7), (50,), (50,), kind="int64")
check(lambda x, y: mm.logical_and(x > 0, y < 0.5), (50,), (50,))
check(lambda x: mm.astype(mm.astype(x, mm.float64) * 2.0 + 1.0, mm.float32) * x, (50,))

w = mm.variable("w", rng.standard_normal((6, 5)).astype("float32"))

@mm.compile
def step(x):
    w.assign(w - 0.1 * (w * 2 + x))
    return mm.sum(w)

counterpart = w.numpy().copy()
for _ in range(3):
    x = rng.standard_normal((6, 5)).astype("float32")
    mm.evaluate(step(mm.asarray(x)))
    counterpart -= np.float32(0.1) * (counterpart * 2 + x)
np.testing.assert_allclose(w.numpy(), counterpart, rtol=1e-5)
"""


def test_quotients_of_float32_are_rounded_to_nearest() -> None:
    """Triton's `/` is not: torch's kernels would have other bits for a few operands."""
    for name in OPERATIONS:
        for operands in (["float32"], ["float32", "float32"]):
            text = triton_kernels.expression(name, "float32", operands)
            assert text is None or "/" not in text, name
    assert triton_kernels.expression("sigmoid", "float32", ["float32"]) is not None


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_give_what_their_instructions_give() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECKED],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
