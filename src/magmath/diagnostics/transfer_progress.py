"""A progress bar on the terminal for long transfers of a known number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LONG_BYTES: Final = 1 << 28
"""Size of the smallest transfer with a bar, in bytes; smaller ones finish too soon to need one."""

Told = Callable[[int, list[float]], None]


@contextmanager
def transfer_progress(name: str, nbytes: int) -> Iterator[Told | None]:
    """Show a progress bar; give the function to call with the number of copied bytes.

    Gives None for a short transfer, or if the standard error is not a terminal.
    """
    if nbytes < LONG_BYTES:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=nbytes)
        yield lambda done, _: bar.advance(task, done)
