"""Training that goes on after the loss of a worker: in a new pool, from the last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from magmath.engine import session
from magmath.errors import WorkerLost

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


def restarted_on_loss(
    run: Callable[[bool], Result], restarts: int, begin_again: Callable[[], None]
) -> Result:
    """Return the result of `run`; after the loss of a worker, start a new pool and run it again.

    run          the argument is True for the first run
    restarts     the number of times that it may be run again
    begin_again  called in the new pool, before it is run again

    Raises WorkerLost for one loss more, and WorkerError if no pool starts.
    """
    for left in range(restarts, -1, -1):
        try:
            return run(left == restarts)
        except WorkerLost as error:
            if not left:
                raise
            pool = session.restart()
            logger.warning(
                "fit: %s; training goes on from the checkpoint with %d workers",
                str(error).split("; ")[0],
                pool.workers,
            )
            begin_again()
    raise AssertionError("the last run returns or raises")
