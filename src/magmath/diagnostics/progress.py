"""Progress bars on the terminal: one display for training, transfers and calibration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from magmath.runtime.run_handle import ProgressCallback

LONG_BYTES: Final = 1 << 28
"""Size of the smallest transfer with a bar, in bytes; smaller ones finish too soon to need one."""


def progress_bar(*columns: str | ProgressColumn, console: Console | None = None) -> Progress:
    """Return a bar with these columns, or Rich's default ones, that disappears at the end.

    It writes to the standard error if no console is given, and nothing if that is no terminal.
    """
    from rich.console import Console
    from rich.progress import Progress

    shown = Console(stderr=True) if console is None else console
    return Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal)


@contextmanager
def transfer_progress(name: str, nbytes: int) -> Iterator[ProgressCallback | None]:
    """Show the bar of a transfer; yield the function to call with the number of copied bytes.

    Yields None for a short transfer, or if the standard error is not a terminal.
    """
    if nbytes < LONG_BYTES:
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with progress_bar(*columns) as bar:
        task = bar.add_task(name, total=nbytes)
        yield None if bar.disable else lambda copied, _: bar.advance(task, copied)
