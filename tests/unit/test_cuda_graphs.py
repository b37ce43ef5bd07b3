"""The recording of steps, on the CPU: a graph is replaced by the calls that it would record."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

RECORDED = """
import contextlib, sys, time, warnings
import numpy as np, torch
import magmath as mm
from magmath.executor import cuda_graphs
from magmath.executor.context import Context
from magmath.executor.fused_kernels import FusedKernel
from magmath.kernels.dispatch.tuner import Measuring

graphs, checked = [], []

def recorded(calls, positions, device):
    graphs.append(positions)
    return lambda: [call() for _, call in calls.calls_at(positions)]

def noted(self, compute):
    checked.append(check(self, compute))
    return checked[-1]

check, FusedKernel.verify = FusedKernel.verify, noted
cuda_graphs._recorded = recorded
cuda_graphs._set_mode = lambda mode: None
torch.cuda.get_sync_debug_mode = lambda: 0
Context.should_record_graphs = property(lambda self: True)
if sys.argv[1] == "without":
    cuda_graphs.find_spec = lambda name: None
mm.init(workers=0, device="cpu", threads=1, seed=1)
rng = np.random.default_rng(0)

# runs of one step
w = mm.variable("w", rng.standard_normal((6, 5)).astype("float32"))
counterpart = w.numpy().copy()

@mm.compile
def step(x, rate):
    y = x * w
    w.assign(w - rate * (w * 2 + y))
    return mm.sum(y) * 2 + 1

for i in range(30):
    x, rate = rng.standard_normal((6, 5)).astype("float32"), 0.1 / (i + 1)
    found = float(step(mm.asarray(x), rate))
    y = x * counterpart
    np.testing.assert_allclose(found, y.sum() * 2 + 1, rtol=1e-4)
    counterpart -= np.float32(rate) * (counterpart * 2 + y)
    np.testing.assert_allclose(w.numpy(), counterpart, rtol=1e-4, atol=1e-5)
    time.sleep(0.01)
assert graphs
if sys.argv[1] == "with":
    assert checked and all(checked), checked

# many steps
graphs.clear()
x, y = rng.random((64, 5), dtype=np.float32), rng.integers(0, 3, 64)
net = mm.nn.Sequential(mm.nn.Dense(4, activation="relu"), mm.nn.Dropout(0.1), mm.nn.Dense(3))
losses = []
for _ in range(2):
    trainer = mm.train.Trainer(net, optimizer=mm.optim.Adam(1e-2), seed=3)
    net.build((1, 5))
    mm.random.seed(4)
    losses.append(trainer.fit(x, y, batch_size=16, epochs=6).loss)
assert graphs and losses[0][-1] < losses[0][0]

# what measures or waits
class Calls:
    def run_each(self, around):
        for position, category, text in [
            (0, None, ""), (1, Measuring, "x"), (2, UserWarning, "a synchronizing CUDA operation"),
            (3, UserWarning, "of a user"),
        ]:
            with around(position):
                if category:
                    warnings.warn(text, category)

watch = cuda_graphs.Watch()
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    watch.run(Calls())
assert watch.is_measuring and watch.waiting == {1, 2}
assert [str(one.message) for one in seen] == ["of a user"]

# an index out of range
pick = mm.compile(lambda x, i: mm.sum(x[i] * 2.0))
a = mm.asarray([1.0, 2.0])
for i in (0, 1, -1, 0, 1, -2, 0, 1):
    assert float(pick(a, mm.asarray(i))) == 2 * [1.0, 2.0][i]
try:
    float(pick(a, mm.asarray(2)))
except IndexError as error:
    assert "extent 2" in str(error)
else:
    raise AssertionError
assert float(pick(a, mm.asarray(1))) == 4.0
"""


@pytest.mark.parametrize("kernels", ["with", "without"])
def test_steps_that_are_recorded_compute_what_others_do(kernels: str) -> None:
    if kernels == "with" and find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    done = subprocess.run(
        [sys.executable, "-c", RECORDED, kernels],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
