"""The pools of tests of arrays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from arrays import KINDS
from engines import current
from magmath.runtime import Pool


@pytest.fixture(autouse=True)
def pool() -> Iterator[Pool]:
    """The pool of the tests that name no other: the worker in this process."""
    with current("inline") as pool:
        yield pool


@pytest.fixture(params=KINDS, ids=[f"{n}-{kind}" for kind, n in KINDS])
def every_pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    with current(*request.param) as pool:
        yield pool
