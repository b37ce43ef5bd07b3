"""Memory for the temporary data of one kernel call, which the calls of a thread share."""

from __future__ import annotations

import threading
from typing import final

import numpy as np
import torch
from torch import Tensor


@final
class _Workspace(threading.local):
    """The workspace of each thread."""

    def __init__(self) -> None:
        self.memory = torch.empty(0, dtype=torch.uint8)


_workspace = _Workspace()


def thread_workspace(nbytes: int) -> Tensor:
    """Return uninitialized host memory of at least `nbytes` bytes, for one call.

    All calls of a thread use it, since a thread executes one call at a time. It grows to the
    largest request: mapping new pages for each call would take as long as many kernels.
    """
    if len(_workspace.memory) < nbytes:
        _workspace.memory = torch.empty(0, dtype=torch.uint8)  # frees the smaller one first
        _workspace.memory = torch.from_numpy(
            np.empty(nbytes, np.uint8)
        )  # NumPy asks for huge pages
    return _workspace.memory
