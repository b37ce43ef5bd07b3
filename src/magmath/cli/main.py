"""The entry point of the command `magmath`: dispatches to sub-commands, and reports errors.

Exit codes: 0 only on success, 1 for an error, 2 for an invalid command line, 130 after Ctrl-C, 141
if the reader of the output has ended (`magmath plan … | head`). Requested help, and that of
`magmath` alone, is a success.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console

from magmath import __version__
from magmath.cli.bench import bench
from magmath.cli.cache import cache
from magmath.cli.calibrate import calibrate
from magmath.cli.info import info
from magmath.cli.plan import plan
from magmath.cli.reproduce import reproduce
from magmath.cli.search import search
from magmath.cli.train import train_app

INVALID = 2
INTERRUPTED = 130
OUTPUT_CLOSED = 141
TERMINATED = 143

HELP = """\
A distributed math library for deep learning.

For example:

    magmath train mlp --data digits --workers 2 --output runs/digits

    magmath info

    magmath bench layers --quick

    magmath search --network mlp --data digits --batch-per-worker 16,64 --images 30720

    magmath plan alexnet --machine k80-fdr --workers 64

    magmath reproduce --all --quick

    magmath cache --clear
"""

app = App(
    name="magmath",
    help=HELP,
    help_format="markdown",
    version=__version__,
    suppress_keyboard_interrupt=False,
    result_action="return_value",
)
app.command(info)
app.command(train_app)
app.command(bench)
app.command(search)
app.command(plan)
app.command(reproduce)
app.command(cache)
app.command(calibrate)


@app.meta.default
def run_command(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    traceback: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Run one of the commands.

    Parameters
    ----------
    traceback
        Show the traceback of an error in addition to its message.
    """
    if tokens == ("train",):
        app(tokens)  # prints the help, with the list of networks, as a network is missing
        return INVALID
    if traceback:
        app(tokens)
        return 0
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            app(tokens)
    except KeyboardInterrupt:
        Console(stderr=True).print("magmath: interrupted")
        return INTERRUPTED
    except Exception as error:
        if isinstance(error, BrokenPipeError) and is_output_closed():
            return OUTPUT_CLOSED
        report(error)
        return 1
    return OUTPUT_CLOSED if is_output_closed() else 0


def is_output_closed() -> bool:
    """Return True if the reader of the standard output has ended; what follows is discarded, so
    that Python's exit does not fail too."""
    if sys.stdout is None:  # there is none, as after `>&-`
        return False
    with suppress(BrokenPipeError):
        sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # not a file
        return False
    output = select.poll()
    output.register(descriptor, 0)
    if not any(event & select.POLLERR for _, event in output.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    return True


def report(error: Exception) -> None:
    """Print an error; its class is included unless it is an error of magmath."""
    from magmath.errors import MagmathError

    message = str(error) if isinstance(error, MagmathError) else f"{type(error).__name__}: {error}"
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print("[bold red]magmath: error:[/]", end=" ")
    console.print(message, markup=False)
    console.print("[dim]The option --traceback shows where it arose.[/]")


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the line of the library that gives it."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print("[bold yellow]magmath: warning:[/]", end=" ")
    console.print(str(message), markup=False)


def terminate(number: int, frame: object) -> None:
    """Handle SIGTERM: exit with code 143."""
    Console(stderr=True).print("magmath: terminated")
    sys.exit(TERMINATED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: of this process) and return the exit code."""
    # Raises an exception, so that workers are stopped and files removed.
    signal.signal(signal.SIGTERM, terminate)
    atexit.register(gc.freeze)  # the exit need not search for garbage: this takes half a second
    # Help and version return None without calling `run_command`.
    return app.meta(sys.argv[1:] if arguments is None else list(arguments)) or 0
