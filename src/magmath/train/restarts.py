"""Training that continues after the loss of a worker: in a new pool, from the last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from magmath.engine import session
from magmath.errors import WorkerLost

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


def restarted_on_loss(
    run: Callable[[], Result],
    restarts: int,
    has_checkpoint: Callable[[], bool],
    drop_pool_state: Callable[[], None],
) -> Result:
    """Return the result of `run`; after the loss of a worker, start a new pool and run it again.

    restarts         the number of times that it may be run again
    has_checkpoint   returns True once there is a checkpoint of this training
    drop_pool_state  called in the new pool, before it is run again

    Raises WorkerLost for one loss more, for a loss before the first checkpoint and for arrays of
    another pool, and WorkerError if no pool starts.
    """
    for restarts_left in range(restarts, -1, -1):
        try:
            if restarts_left < restarts:
                drop_pool_state()
            return run()
        except WorkerLost as error:
            if not restarts_left or not has_checkpoint() or session.has_open_pool():
                raise
            pool = session.restart()
            logger.warning(
                "fit: %s; training continues from the checkpoint with %d workers",
                str(error).split("; ")[0],
                pool.workers,
            )
    raise AssertionError("the last run returns or raises")
