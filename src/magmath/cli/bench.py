"""`magmath bench`: measures magmath and its peers on this machine and shows tables and plots."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveInt
from rich.console import Console

from magmath.bench import BENCHES, RunOptions
from magmath.errors import OptionError


def bench(
    name: str | None = None,
    /,
    *,
    peers: str = "all",
    workers: PositiveInt = 2,
    hosts: str | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    quick: Annotated[bool, Parameter(negative=())] = False,
    cases: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    json: Path | None = None,
    plot: Path | None = None,
    peer_python: Annotated[tuple[Path, ...], Parameter(negative=())] = (),
) -> None:
    """Measure magmath side by side with other systems; without NAME, list the benchmarks.

    Every system runs in its own process, one after the other in each round, on the same cores and
    the same data. Systems that are not installed are listed as absent.

    For example:

        magmath bench

        magmath bench layers --peers torch,jax --json layers.json --plot layers.png

        magmath bench collectives --quick

        magmath bench cnn --device cuda --peers torch

        magmath bench gemm --cases 4096×4096×4096 --peer-python heat/bin/python

    Parameters
    ----------
    name
        The benchmark.
    peers
        The peers to measure, separated by commas; "all", or "none".
    workers
        Number of workers, where a benchmark uses several.
    hosts
        Hosts of the workers, such as a:1,b:1, for `overlap`, which otherwise simulates the
        network.
    device
        Where networks are trained and run: "cpu", or "cuda" for the first GPU.
    quick
        Fewer cases and rounds, for a first impression.
    cases
        Only the cases whose names contain this text; may be given several times.
    json
        Write machine, versions, commit, command and every round to this file.
    plot
        Draw the result into this file (PNG, SVG or PDF).
    peer_python
        Python of another environment, for peers that are installed there; may be given several
        times.
    """
    from magmath.bench.result_output import print_result, save_result
    from magmath.bench.result_plots import plot_result
    from magmath.bench.runner import run_bench

    console = Console(highlight=False)
    if name is None:
        for benchmark in BENCHES.values():
            console.print(f"[bold]{benchmark.name:12}[/] {benchmark.title}")
        return
    if name not in BENCHES:
        raise OptionError(f"bench: unknown benchmark {name!r}; known are {', '.join(BENCHES)}")
    if hosts is not None and not BENCHES[name].uses_hosts:
        names = [benchmark.name for benchmark in BENCHES.values() if benchmark.uses_hosts]
        raise OptionError(f"bench: --hosts is an option of {', '.join(names)}, not of {name}")
    if device == "cuda" and not BENCHES[name].uses_gpus:
        names = [benchmark.name for benchmark in BENCHES.values() if benchmark.uses_gpus]
        raise OptionError(f"bench: --device is an option of {', '.join(names)}, not of {name}")
    options = RunOptions(
        peers=tuple(peers.split(",")),
        workers=workers,
        hosts=hosts,
        device=device,
        quick=quick,
        cases=cases,
        pythons=(sys.executable, *map(str, peer_python)),
    )
    result = run_bench(BENCHES[name], options, Console(stderr=True, highlight=False))
    print_result(result, console)
    if json:
        save_result(result, json)
    if plot:
        plot_result(result, plot)
    result.raise_if_incomplete()
