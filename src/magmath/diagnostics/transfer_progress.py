"""A bar on the terminal for what takes long and has a known number of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LONG_BYTES: Final = 1 << 28
"""Below this a transfer is over before a bar has been read."""

Told = Callable[[int, list[float]], None]


@contextmanager
def transfer_progress(name: str, nbytes: int) -> Iterator[Told | None]:
    """What to tell of bytes that have been copied; None where it is short or nobody watches."""
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
