"""Pools on several hosts: network namespaces where the machine can make them, with 1 Gb/s links."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import magmath as mm
from magmath.errors import OptionError, WorkerError
from magmath.runtime import hosts as hosts_module
from magmath.runtime.hosts import check_hosts, parse_hosts
from namespaces import ADDRESSES, CONTROLLER, Hosts, missing
from processes import eventually, leftover_files

SCRIPT = Path(__file__).with_name("hosts_script.py")
SECONDS = 240
STARTED_SECONDS = 1  # the workers of each script have started long before
TWO_AND_ONE = (f"{ADDRESSES['a']}:2", f"{ADDRESSES['b']}:1")


@pytest.fixture(scope="module")
def network() -> Iterator[Hosts]:
    if reason := missing():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="mmh") as folder:
        try:
            hosts = Hosts(Path(folder), megabits=1000)
        except OSError as error:
            pytest.skip(f"this machine makes no network namespaces: {error}")
        yield hosts
        hosts.remove()


def controller(network: Hosts, *words: str) -> str:
    """Run Python as the controller, in a temporary folder of its own; return its output."""
    folder = tempfile.mkdtemp(prefix="t-")
    before = leftover_files()
    environment = os.environ | {
        "MAGMATH_REMOTE_SHELL": str(network.shell),
        "TMPDIR": folder,
        "UCX_TLS": "tcp,self",  # otherwise it finds that the hosts have one kernel
    }
    done = _run_once(network, words, environment)
    if "did not start" in done.stderr:  # once in many runs a launcher does not reach a host
        print(f"workers are started again after {done.stderr}", file=sys.__stderr__)
        done = _run_once(network, words, environment)
    log = Path(f"{network.shell}.log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log
    assert eventually(lambda: not network.all_processes(), 20), network.all_processes()
    assert eventually(lambda: not os.listdir(folder)), os.listdir(folder)
    os.rmdir(folder)
    left = leftover_files() - before  # files that appear from now on belong to other processes
    assert eventually(lambda: not left & leftover_files()), (
        f"left behind: {left & leftover_files()}"
    )
    return done.stdout


def _run_once(
    network: Hosts, words: tuple[str, ...], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run Python as the controller, with all links. If it waits for workers for long, its messages
    end with a description of the hosts at that time."""
    network.restore_link()
    with subprocess.Popen(
        network.command(sys.executable, *words), env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            out, messages = process.communicate(timeout=STARTED_SECONDS)
        except subprocess.TimeoutExpired:
            state = network.describe()
            try:
                out, messages = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                out, messages = process.communicate()
                messages += f"\nended after {SECONDS} s"
            messages += f"\nafter {STARTED_SECONDS} s:\n{state}"
    return subprocess.CompletedProcess(words, process.returncode, out, messages)


def check(output: str) -> float:
    """Check the lines of the script; return the seconds after which the loss was noticed."""
    assert "3 workers on 2 hosts" in output
    assert f"address tcp://{CONTROLLER}:" in output
    assert "products True" in output
    assert "training True" in output
    assert "afterwards 3.0" in output
    lost = re.search(r"lost after ([\d.]+) s: worker 2 on host-b ", output)
    assert lost, output
    return float(lost[1])


def test_results_equal_one_process_and_a_cut_link_is_noticed(network: Hosts) -> None:
    output = controller(network, str(SCRIPT), "cut", network.cut_command(), *TWO_AND_ONE)
    assert "asynchronous True" in output, output
    assert check(output) < 20  # a heartbeat timeout of 2 s, and the end of the launcher


def test_bits_equal_one_process_and_killed_workers_are_noticed(network: Hosts) -> None:
    output = controller(network, str(SCRIPT), "kill", "", *TWO_AND_ONE)
    assert check(output) < 10


def test_train_command_runs_on_hosts(network: Hosts, tmp_path: Path) -> None:
    names = ",".join(ADDRESSES.values())
    output = controller(
        network, "-m", "magmath", "train", "mlp", "--workers", "2", "--hosts", names,
        "--epochs", "2", "--output", str(tmp_path / "run"), "--json",
    )  # fmt: skip
    assert '"test_accuracy"' in output


# Lists of hosts.


@pytest.mark.parametrize(
    ("hosts", "workers", "counts"),
    [
        (["a:2", "b:1"], 0, (2, 1)),
        ("a:2, b:1", 3, (2, 1)),
        (["a", "b"], 5, (3, 2)),
        (["a", "b"], 0, (1, 1)),
        (["a:3", "b"], 4, (3, 1)),
    ],
)
def test_list_of_hosts(hosts: list[str] | str, workers: int, counts: tuple[int, ...]) -> None:
    parsed = parse_hosts(hosts, workers)
    assert (parsed.names, parsed.counts) == (("a", "b"), counts)
    assert parsed.of_worker == [0] * counts[0] + [1] * counts[1]


@pytest.mark.parametrize(
    ("hosts", "workers", "message"),
    [
        ([], 2, "hosts must be names"),
        ("", 2, "hosts must be names"),
        ([3], 2, "hosts must be names"),
        (["a:x"], 2, "'a:x' is not of this form"),
        (["a:0"], 2, "'a:0' is not of this form"),
        (["-oProxyCommand=x"], 2, "is not of this form"),
        (["a", "a"], 2, "names a more than once"),
        (["a:2", "b:2"], 3, "room for 4 workers, workers=3"),
        (["a:2", "b:2"], 5, "room for 4 workers, workers=5"),
        (["a", "b", "c"], 2, "room for 3 workers or more, workers=2"),
    ],
)
def test_wrong_lists_are_refused(hosts: list[str] | str, workers: int, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        mm.init(workers, hosts=hosts)


def test_other_launchers_have_their_own_lists() -> None:
    with pytest.raises(OptionError, match='hosts needs launcher="mpiexec"'):
        mm.init(2, hosts=["a", "b"], launcher="srun")


def shell(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Make a shell script the remote shell."""
    file = folder / "shell"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o700)
    monkeypatch.setenv("MAGMATH_REMOTE_SHELL", str(file))


def test_silent_host_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shell(monkeypatch, tmp_path, 'test "$2" = there || sleep 60')
    monkeypatch.setattr(hosts_module, "ANSWER_SECONDS", 1.0)
    start = time.monotonic()
    with pytest.raises(WorkerError, match="1 of 2 hosts.*: away did not answer within 1 s"):
        mm.init(2, hosts=["there", "away"])
    assert time.monotonic() - start < 30


def test_message_of_the_remote_shell_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell(monkeypatch, tmp_path, "echo connection refused; exit 255")
    with pytest.raises(WorkerError, match="2 of 2 hosts.*a: connection refused; b: connection"):
        mm.init(2, hosts=["a", "b"])


def test_host_without_the_environment_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shell(monkeypatch, tmp_path, "exit 1")
    with pytest.raises(WorkerError, match=f"a has no program {sys.executable}"):
        check_hosts(parse_hosts("a"))


@pytest.mark.parametrize("program", ["/nonexistent/shell", "ssh -p 2222", "'ssh"])
def test_missing_remote_shell_is_named(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """mpiexec takes one word, so arguments belong in a script."""
    monkeypatch.setenv("MAGMATH_REMOTE_SHELL", program)
    with pytest.raises(WorkerError, match=f"remote shell .{program}.*without arguments"):
        mm.init(2, hosts=["a", "b"])
