"""Fixtures of the tests of worker processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from processes import eventually, litter, started_with


@pytest.fixture
def no_litter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails where the test leaves a process or a file behind, whatever else runs meanwhile.

    What the test starts is known by its TMPDIR. MPI's files in shared places bear no name of who
    made them; so one that is there once all these processes have ended, was not there before, is
    not removed by anybody, and that nobody has open is taken for the test's.
    """
    directory = tempfile.mkdtemp(prefix="t-")  # not pytest's, whose paths are long for a socket
    monkeypatch.setenv("TMPDIR", directory)
    monkeypatch.setattr("tempfile.tempdir", directory)
    before = litter()
    yield
    assert eventually(lambda: not started_with("TMPDIR", directory)), "processes go on"
    left = litter() - before  # files that appear from now on belong to other processes
    assert eventually(lambda: not os.listdir(directory)), os.listdir(directory)
    os.rmdir(directory)
    assert eventually(lambda: not left & litter()), f"left behind: {left & litter()}"
