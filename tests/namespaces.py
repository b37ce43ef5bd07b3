"""Three "hosts" on one machine: network namespaces, joined by a bridge with links of a bandwidth.

The controller's namespace has the bridge. Each of the two other hosts has a link to it, and a host
name of its own. Needs root, and the programs ip and tc of iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ADDRESSES = {"a": "10.79.0.1", "b": "10.79.0.2"}
CONTROLLER = "10.79.0.3"
LINK_ADDRESSES = {"a": "02:00:0a:4f:00:01", "b": "02:00:0a:4f:00:02", "c": "02:00:0a:4f:00:03"}

# Stands for ssh: what it starts stays when the caller is killed, or when the link is cut.
SHELL = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
case $1 in {a}) name=a;; {b}) name=b;; *) echo "no host $1"; exit 255;; esac
shift
ip netns exec {prefix}$name setsid -f -w unshare --uts \\
    bash -c "hostname host-$name; $*" </dev/null >>"$0.log" 2>&1
"""


class Hosts:
    """The namespaces, whose names begin with `prefix`; `folder` gets the remote shell."""

    def __init__(self, folder: Path, megabits: int) -> None:
        self._prefix = f"mm{os.getpid()}"
        self.shell = folder / "shell"
        self.shell.write_text(SHELL.format(prefix=self._prefix, **ADDRESSES))
        self.shell.chmod(0o700)
        try:
            self._make(megabits)
        except BaseException:
            self.remove()
            raise

    def _make(self, megabits: int) -> None:
        for name in ("a", "b", "c"):
            self._run(f"ip netns add {self._prefix}{name}")
            self._inside(name, "ip link set lo up")
        self._inside("c", f"ip link add bridge address {LINK_ADDRESSES['c']} type bridge")
        self._inside("c", f"ip addr add {CONTROLLER}/24 dev bridge")
        self._inside("c", "ip link set bridge up")
        for name, address in ADDRESSES.items():
            own, port = f"{self._prefix}{name}", f"{self._prefix}p{name}"
            self._run(f"ip link add {own} netns {own} type veth peer name {port}")
            self._run(f"ip link set {port} netns {self._prefix}c")
            self._inside(name, f"ip addr add {address}/24 dev {own}")
            self._inside(name, f"ip link set {own} address {LINK_ADDRESSES[name]} up")
            self._inside("c", f"ip link set {port} master bridge up")
            for where, device in ((name, own), ("c", port)):
                limit = f"rate {megabits}mbit burst 512kb latency 50ms"
                self._inside(where, f"tc qdisc add dev {device} root tbf {limit}")
        self._set_neighbours()

    def _set_neighbours(self) -> None:
        """Tell every host the link addresses of the others, since a busy machine may answer the
        question for one too late, and a connection then fails."""
        addresses = ADDRESSES | {"c": CONTROLLER}
        for name in addresses:
            device = "bridge" if name == "c" else f"{self._prefix}{name}"
            for other, address in addresses.items():
                if other != name:
                    known = f"{address} lladdr {LINK_ADDRESSES[other]}"
                    self._inside(name, f"ip neigh replace {known} dev {device} nud permanent")

    def command(self, *words: str) -> list[str]:
        """Return the command that runs another one as the controller, with a host name."""
        script = 'hostname host-c; exec "$@"'
        return [
            "ip", "netns", "exec", f"{self._prefix}c", "unshare", "--uts",
            "bash", "-c", script, "bash", *words,
        ]  # fmt: skip

    def cut_command(self) -> str:
        """Return the command that cuts host b off, to be run by the controller."""
        return f"ip link set {self._prefix}pb down"

    def restore_link(self) -> None:
        """Undo the cut of host b."""
        self._inside("c", f"ip link set {self._prefix}pb up")

    def all_processes(self) -> list[int]:
        """Return the processes of all hosts."""
        result = [self._run(f"ip netns pids {self._prefix}{name}") for name in ("a", "b", "c")]
        return [int(word) for pids in result for word in pids.split()]

    def describe(self) -> str:
        """Return the processes, links and connections of all hosts, to explain a failure."""
        commands = ("ip -brief link", "ip neigh", "ss -tanp")
        result = [
            f"{name}: {command}\n{self._try(f'ip netns exec {self._prefix}{name} {command}')}"
            for name in ("a", "b", "c")
            for command in commands
        ]
        pids = ",".join(map(str, self.all_processes())) or "0"
        return "\n".join([*result, self._try(f"ps -o pid,ppid,stat,wchan:20,args -p {pids}")])

    def remove(self) -> None:
        """Remove the namespaces and their links."""
        for name in ("a", "b", "c"):
            namespace = f"{self._prefix}{name}"
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)

    def _inside(self, name: str, command: str) -> None:
        self._run(f"ip netns exec {self._prefix}{name} {command}")

    @staticmethod
    def _try(command: str) -> str:
        """Return what a command prints; an empty string if the machine lacks it."""
        if shutil.which(command.split()[0]) is None:
            return ""
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def _run(self, command: str) -> str:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"{command}: {done.stderr.strip()}")
        return done.stdout


def missing(programs: Sequence[str] = ("ip", "tc", "unshare", "setsid")) -> str:
    """Return why this machine cannot make hosts; empty if it may."""
    if os.geteuid():
        return "network namespaces need root"
    absent = [program for program in programs if shutil.which(program) is None]
    return f"this machine has no {', '.join(absent)}" if absent else ""
