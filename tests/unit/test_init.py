"""Options of `mm.init`: what can be checked is checked before the running pool ends."""

from __future__ import annotations

from typing import Any

import pytest

import magmath as mm
from magmath.errors import DeviceError, OptionError, WorkerError, WorkerLost
from magmath.runtime.pool_factory import MIN_MEMORY_LIMIT

MISTAKES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"device": "tpu"}, DeviceError, "device must be"),
    ({"device": None}, DeviceError, "device must be"),
    ({"device": "cuda:99"}, DeviceError, "99"),
    ({"launcher": "foo"}, OptionError, "launcher must be"),
    ({"workers": 2, "launcher": "nolauncher {n}"}, WorkerError, "neither on the PATH"),
    ({"hosts": ["nohost.invalid"]}, WorkerError, "nohost.invalid"),
    ({"hosts": ["a b"]}, OptionError, "hosts must be"),
    ({"hosts": {"a": 2, "b": 2}}, OptionError, r"hosts must be names.*not {'a': 2, 'b': 2}"),
    ({"hosts": 3}, OptionError, "hosts must be names.*not 3"),
    ({"deterministic": "no"}, OptionError, "deterministic must be True or False"),
    ({"winograd": 1}, OptionError, "winograd must be True or False, was given 1"),
    ({"flush_denormals": None}, OptionError, "flush_denormals must be True or False"),
    ({"workers": -1}, OptionError, "workers must be"),
    ({"threads": "two"}, OptionError, "threads must be"),
    ({"seed": 1.5}, OptionError, "seed must be"),
    ({"memory_limit": 10}, OptionError, f"at least {MIN_MEMORY_LIMIT} bytes"),
    ({"fold_bias": "never"}, OptionError, "fold_bias must be"),
    ({"heartbeat_timeout": -1}, OptionError, "heartbeat_timeout must be"),
    ({"worker": 2}, TypeError, "did you mean workers="),
    ({"gpus": 2}, TypeError, "it takes workers, device"),
]


@pytest.mark.parametrize(("options", "kind", "words"), MISTAKES)
def test_a_mistake_leaves_the_running_pool_as_it_is(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with mm.init(workers=2, launcher="threads", device="cpu", threads=1) as pool:
        x = mm.asarray([1.0, 2.0, 3.0], layout=mm.Layout.split(0))
        with pytest.raises(kind, match=words):
            mm.init(**options)
        assert mm.pool() is pool
        assert (2 * x).tolist() == [2.0, 4.0, 6.0]


def test_the_smallest_limit_of_memory_holds_small_arrays() -> None:
    with mm.init(2, launcher="threads", device="cpu", memory_limit=MIN_MEMORY_LIMIT):
        x = mm.arange(10.0)
        assert float(x @ x) == 285


def test_the_limit_of_another_pool_does_not_count_arrays_of_a_former_one() -> None:
    with mm.init(0, device="cpu"):
        x = mm.ones((300, 300))
        mm.evaluate(x)
    with mm.init(2, launcher="threads", device="cpu", memory_limit=MIN_MEMORY_LIMIT):
        for use in (mm.sum, mm.copy, lambda x: x[:2], lambda x: x.numpy(), lambda x: 2 * x):
            with pytest.raises(WorkerLost, match="belongs to another pool, which has ended"):
                mm.evaluate(use(x))
