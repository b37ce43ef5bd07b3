"""`magmath calibrate`: measures this machine for the predictions of the planner, and shows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console

from magmath.core.json_text import json_text

if TYPE_CHECKING:
    from magmath.cost import Machine


def calibrate(
    *,
    show: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Measure the speed of arithmetic, memory, single operations, and the links between workers, on
    which plans depend.

    The constants are stored in the cache directory and used from the next `mm.init` on, for plans
    and for the predictions of `explain`, by processes that may use as many processors. Without
    them, defaults are used. The measurement takes up to a minute and needs an otherwise idle
    machine.

    For example:

        magmath calibrate

        magmath calibrate --show

        magmath calibrate --json > machine.json

    Parameters
    ----------
    show
        Measure nothing; show the constants that are in use.
    json
        Print one JSON object.
    """
    from magmath.cost import current_machine

    machine = current_machine() if show else _measure()
    if json:
        print(json_text(asdict(machine)))
        return
    _print(machine, Console(soft_wrap=True, highlight=False))


def _measure() -> Machine:
    """Measure and keep the constants."""
    from magmath.bench.calibration import STEPS, calibrate
    from magmath.cost import store_machine
    from magmath.diagnostics.progress import progress_bar

    with progress_bar() as progress:
        task = progress.add_task("calibrating", total=len(STEPS))

        def report(name: str) -> None:
            completed = list(STEPS).index(name)
            progress.update(task, completed=completed, description=f"measuring {name}")

        machine = calibrate(report)
    store_machine(machine)
    return machine


def _print(machine: Machine, console: Console) -> None:
    """Print the constants, a line for each."""
    from magmath.cost.operation_rate import is_counted_in_flops

    console.print(f"machine          {machine.source}", markup=False)
    for rate in machine.gemm:
        threads = f"{rate.threads} thread{'s' if rate.threads > 1 else ''}"
        console.print(f"products         {rate.flops / 1e9:8.1f} GFLOP/s  {rate.dtype}, {threads}")
    console.print(f"memory           {machine.bandwidth / 1e9:8.1f} GB/s     one thread")
    console.print(f"memory           {machine.host_bandwidth / 1e9:8.1f} GB/s     all threads")
    for name in ("arithmetic", "division", "transcendental"):
        console.print(f"{name:16} {getattr(machine, name) / 1e9:8.2f} G elements/s")
    for operation in machine.operations:
        unit = "flop" if is_counted_in_flops(operation.name) else "byte"
        speeds = ", ".join(
            f"{seconds * 1e12:.3g} at {size / 1e6:.3g} MB" for size, seconds in operation.speeds
        )
        console.print(
            f"{operation.name:22} {operation.fixed * 1e6:8.2f} µs a call, ps a {unit}: "
            f"{speeds or 0}; {operation.threads} thread{'s' if operation.threads > 1 else ''}"
        )
    console.print(f"all processors   {machine.crowding:8.2f} × the time of a product")
    console.print(f"crowded barrier  {machine.crowded_barrier * 1e6:8.1f} µs")
    console.print(f"kernel call      {machine.call_seconds * 1e6:8.2f} µs")
    console.print(f"control message  {machine.control_seconds * 1e6:8.1f} µs")
    for name in ("shared", "messages", "team"):
        link = getattr(machine, name)
        console.print(
            f"link: {name:10} {link.bandwidth / 1e9:8.1f} GB/s     latency "
            f"{link.latency * 1e6:.1f} µs, barrier {link.barrier * 1e6:.1f} µs"
        )
