"""Forks of a process that has computed: they continue with one thread, or raise an error.

Each test is a separate script, since the test process has already created many threads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """\
import multiprocessing, os, sys, warnings
import numpy as np
import magmath as mm

warnings.simplefilter("ignore")  # Python warns of forks of processes with threads

def in_fork(function):
    '''What a function returns in a fork of this process, or the exception that it raises.'''
    def work(queue):
        try:
            queue.put(function())
        except BaseException as error:
            queue.put(error)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    answer = queue.get()
    process.join()
    assert process.exitcode == 0, process.exitcode
    return answer

def close(one, other):
    return abs(one - other) <= 1e-4 * abs(one)
"""

COMPUTING = """
mm.init(0, device="cpu", threads=2)
x = mm.asarray(np.random.default_rng(0).random((1200, 1200), dtype=np.float32))
v = mm.variable("v", x[:40])
optimizer = mm.optim.GradientDescent(1e-4)
loss = mm.mean(mm.square(v @ x))
step = mm.compile(lambda a: mm.sum(mm.tanh(a @ a)))

def work():
    '''Threads of OpenMP, of both OpenBLAS, of MKL, and a team of lanes.'''
    made = mm.sum(mm.exp(x) @ x), mm.sum(mm.sort(x) * x), step(x)
    values = mm.linalg.svd(x[:300, :300])[1]
    return [float(n) for n in (*made, mm.sum(values), mm.sum(mm.square(mm.abs(mm.fft.fft(x[:99])))))]

def train():
    for _ in range(8):
        last = optimizer.minimize(loss, [v], steps=20)
    return last
"""


def run(script: str, **environment: str) -> str:
    """What a script prints. It must end well, and within the time."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_computes_as_its_parent_does() -> None:
    """Before its parent has computed anything, and after programs of one kind and of all kinds."""
    run(
        COMPUTING
        + """
forks = [in_fork(work), in_fork(lambda: in_fork(work))]  # the second: a fork of a fork
mm.evaluate(x)
forks.append(in_fork(work))
expected = work()
forks.append(in_fork(work))
forks.append(in_fork(lambda: in_fork(work)))
for inner in forks:
    assert all(map(close, expected, inner)), (expected, inner)
assert all(map(close, expected, work()))
"""
    )


def test_a_fork_trains_as_its_parent_does() -> None:
    """By replay, by native code and by a team of threads, which the fork has to create again."""
    run(
        COMPUTING
        + """
first = train()
inner, own = in_fork(train), train()
assert own < first
assert close(own, inner), (own, inner)
""",
        MAGMATH_COMPILE_AFTER="0",
    )


def test_pools_of_forks() -> None:
    run(
        COMPUTING
        + """
def row(i):
    return float(mm.sum(x[i] @ x))

expected = [row(i) for i in range(8)]
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert all(map(close, expected, pool.map(row, range(8))))
assert all(map(close, expected, [row(i) for i in range(8)]))
"""
    )


def test_a_fork_starts_pools_of_its_own() -> None:
    run(
        COMPUTING
        + """
def other():
    total = float(mm.sum(mm.exp(x) @ x))
    values = np.asarray(x)
    with mm.init(0, threads=2) as pool:
        threads = pool.topology.threads
        again = mm.asarray(values)
        assert close(total, float(mm.sum(mm.exp(again) @ again)))
    with mm.init(2, launcher="threads") as pool:
        again = mm.asarray(values, layout=mm.Layout.split(0))
        assert close(total, float(mm.sum(mm.exp(again) @ again)))
    return threads

work()
assert in_fork(other) == 1, "threads"
work()
"""
    )


LEAVING = """
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    {work}
    sys.exit(7)  # through all that was registered to happen at exit
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""


def test_a_fork_that_exits_takes_nothing_with_it() -> None:
    run(
        COMPUTING
        + "expected = work()"
        + LEAVING.format(work="work()")
        + "assert work() == expected"
    )


@pytest.mark.parametrize(
    ("launcher", "workers", "own"),
    [("mpiexec", 2, 1), ("mpiexec -n {n}", 1, 0), ("threads", 2, 0)],
)
def test_a_fork_cannot_reach_workers_and_may_start_others(
    launcher: str, workers: int, own: int
) -> None:
    """The launcher decides whether they are reached by ipc, by tcp or by queues.

    `own`: how many workers the fork starts, 0 for itself.
    """
    run(
        f"mm.init({workers}, device='cpu', threads=1, launcher={launcher!r})"
        + """
x = mm.asarray(np.arange(12.0).reshape(4, 3), layout=mm.Layout.split(0))
y = x + 1
mm.evaluate(x)
for use in (lambda: float(mm.sum(x)), lambda: np.asarray(x), lambda: mm.evaluate(y), lambda: mm.ones(3) + x[0]):
    error = in_fork(lambda: repr(use()))
    if isinstance(error, str):  # an expression that reads no value
        assert "its pool is another process's" in error, error
    else:
        assert isinstance(error, mm.errors.WorkerLost), error
        assert "this process is a fork" in str(error), error
assert in_fork(lambda: repr(x)) == "<magmath.Array of shape (4, 3) float64: its pool is another process's>"
"""
        + f"""
def own():
    with mm.init({own}, device="cpu", threads=1) as pool:
        return float(mm.sum(mm.ones((600, 600)) @ mm.ones((600, 600)))), pool.stats()[0]["pid"]
"""
        + """
total, pid = in_fork(own)
assert total == 600.0**3
assert pid not in [worker["pid"] for worker in mm.pool().stats()]
assert float(mm.sum(y)) == 78.0
"""
        + LEAVING.format(work="pass")
        + "assert float(mm.sum(y + x)) == 144.0"
    )


def test_a_fork_finds_the_locks_of_modules_free() -> None:
    """Those that another thread of the parent holds, and those that the thread holds which forks."""
    run(
        """
import os, pkgutil, sys, threading
from contextlib import ExitStack
from importlib import import_module
import magmath

KINDS = (type(threading.Lock()), type(threading.RLock()))
for module in pkgutil.walk_packages(magmath.__path__, "magmath."):
    if not module.name.endswith("__main__"):
        try:
            import_module(module.name)
        except ImportError:  # of an optional package
            pass

def locks():
    return {
        f"{module}.{name}": value
        for module, content in sys.modules.items() if module.startswith("magmath")
        for name, value in vars(content).items() if isinstance(value, KINDS)
    }

def hold():
    with ExitStack() as held:
        for lock in locks().values():
            held.enter_context(lock)
        is_held.set()
        is_forked.wait()

is_held, is_forked = threading.Event(), threading.Event()
thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if not child:
    taken = {name for name, lock in locks().items() if not lock.acquire(blocking=False)}
    print(taken, flush=True)
    os._exit(len(taken))
is_forked.set()
thread.join()
assert len(locks()) > 5 and os.waitpid(child, 0)[1] == 0
with ExitStack() as held:
    for lock in locks().values():
        held.enter_context(lock)
    child = os.fork()
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    )


def test_a_fork_computes_while_another_thread_of_its_parent_starts_the_pool() -> None:
    run(
        """
import time, threading
from magmath import runtime
prepare, is_starting, is_forked = runtime.prepare_pool, threading.Event(), threading.Event()

def prepared(*arguments, **options):
    is_starting.set()
    is_forked.wait(20)
    return prepare(*arguments, **options)

runtime.prepare_pool = prepared
thread = threading.Thread(target=lambda: mm.ones(3).numpy())
thread.start()
is_starting.wait()

def work():
    is_forked.set()
    return mm.ones(3).tolist()

assert in_fork(work) == [1.0] * 3
is_forked.set()
thread.join()
"""
    )


def test_a_fork_while_another_thread_traces_makes_nodes_as_before() -> None:
    run(
        """
import threading
from magmath.graph import collecting_new_nodes, operation

is_tracing, is_forked = threading.Event(), threading.Event()

def traced(x):
    is_tracing.set()
    is_forked.wait(20)
    return x + 1

x = mm.ones(3)
thread = threading.Thread(target=lambda: mm.compile(traced)(x))
thread.start()
is_tracing.wait()
child = os.fork()
if not child:
    with collecting_new_nodes() as nodes:
        made = operation.make_node(x.node.operation, (), {}, (), x.node.dtype)
    is_right = nodes == {made} and operation.new_node is operation.Node
    os._exit(0 if is_right else 1)
assert os.waitpid(child, 0)[1] == 0
is_forked.set()
thread.join()
assert operation.new_node is operation.Node
"""
    )
