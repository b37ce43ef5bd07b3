"""Arrays whose pool has ended: printing shows one line, and reading values raises one error."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from magmath.errors import WorkerLost

ENDED = "<magmath.Array of shape (3,) float32: its pool has ended>"

SHOWN: dict[str, Callable[[mm.Array], str]] = {
    "repr": repr,
    "str": str,
    "html": lambda x: x._repr_html_().replace("&lt;", "<").replace("&gt;", ">"),
    "format": lambda x: f"{x}",
    "pending": lambda x: repr(x + 1),
}
VALUES: dict[str, Callable[[mm.Array], Any]] = {
    "float": lambda x: float(x[0]),
    "asarray": np.asarray,
    "tolist": lambda x: x.tolist(),
    "pending": lambda x: np.asarray(x + 1),
    "layout": lambda x: (x + 1).layout,
    "evaluate": lambda x: mm.evaluate(x + 1),
    "tobytes": lambda x: x.tobytes(),
    "torch": torch.as_tensor,
}


def shut_down() -> None:
    """End the pool in good order."""
    mm.shutdown()


def kill_a_worker() -> None:
    """End it so that the next call finds out."""
    os.kill(int(mm.pool().stats()[-1]["pid"]), signal.SIGKILL)
    with pytest.raises(WorkerLost):
        _ask_again_and_again()


def _ask_again_and_again() -> None:
    while True:
        mm.pool().stats()


def start_another() -> None:
    """Leave the arrays behind."""
    mm.init(0, device="cpu")


ENDS = [
    *((0, end) for end in (shut_down, start_another)),
    (2, shut_down),
    (2, kill_a_worker),
    (1, start_another),
]


@pytest.fixture(params=ENDS, ids=lambda value: f"{value[0]}-{value[1].__name__}")
def ended(request: pytest.FixtureRequest) -> Iterator[tuple[mm.Array, mm.Variable]]:
    """An array and a variable whose pool has ended."""
    workers, end = request.param
    mm.init(workers, device="cpu", threads=1)
    array, variable = mm.asarray([1.0, 2.0, 3.0]), mm.variable("v", [1.0, 2.0, 3.0])
    mm.evaluate(array)
    end()
    yield array, variable
    mm.shutdown()


def test_lost_arrays_print_one_line_and_have_no_values(
    ended: tuple[mm.Array, mm.Variable],
) -> None:
    """Also after another pool was started."""
    _check_lost(ended)
    start_another()
    _check_lost(ended)


def _check_lost(arrays: tuple[mm.Array, mm.Variable]) -> None:
    for array in arrays:
        for use in VALUES.values():
            with pytest.raises(WorkerLost, match="start a new|another pool") as caught:
                use(array)
            text = "".join(traceback.format_exception(caught.value))
            assert text.count("Traceback") == 1, "one error, not a chain of them"
        for show in SHOWN.values():
            assert show(array) == ENDED


def test_the_loss_itself_does_not_break_what_is_shown() -> None:
    """Also where showing an array is what finds out that its worker is gone."""
    mm.init(2, device="cpu", threads=1)
    array = mm.ones((3,), layout=mm.Layout.split(0))
    mm.evaluate(array)
    os.kill(int(mm.pool().stats()[1]["pid"]), signal.SIGKILL)
    assert repr(array) == ENDED
    with pytest.raises(WorkerLost, match=r"worker 1 on .+ was lost: Killed"):
        np.asarray(array)
    mm.shutdown()


def test_expressions_of_numbers_alone_outlive_a_pool() -> None:
    mm.init(0, device="cpu")
    array = mm.ones((3,)) + 1
    mm.shutdown()
    assert array.tolist() == [2.0, 2.0, 2.0]
    mm.shutdown()
