"""Several threads of user code."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import magmath as mm
from magmath import runtime


def test_the_first_operations_of_several_threads_start_one_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, started = runtime.start_pool, []

    def slowly(*args: Any, **options: Any) -> Any:
        time.sleep(0.05)
        started.append(start(*args, **options))
        return started[-1]

    mm.shutdown()
    monkeypatch.setattr(runtime, "start_pool", slowly)
    made: list[mm.Array] = []

    def work() -> None:
        made.append(mm.ones(3) + 1)
        mm.evaluate(made[-1])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(started) == 1
    assert [x.tolist() for x in made] == [[2.0] * 3] * 8
