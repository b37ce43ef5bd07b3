"""Fixtures of the tests of worker processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import pytest

from processes import eventually, leftover_files, started_with


@pytest.fixture
def no_leftovers(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Fails if the test leaves a process or a file; other processes may run at the same time.

    What the test starts is known by its TMPDIR. Names of MPI's files in shared folders do not contain
    the process that made them. So a file counts as the test's if it exists after all these
    processes have ended, did not exist before, is not removed, and is open in no process.
    """
    tmp_path_factory.getbasetemp()  # made here, it is not among the files of the test
    directory = tempfile.mkdtemp(prefix="t-")  # not pytest's, whose paths are long for a socket
    monkeypatch.setenv("TMPDIR", directory)
    monkeypatch.setattr("tempfile.tempdir", directory)
    before = leftover_files()
    yield
    assert eventually(lambda: not started_with("TMPDIR", directory)), "processes go on"
    left = leftover_files() - before  # files that appear from now on belong to other processes
    assert eventually(lambda: not os.listdir(directory)), os.listdir(directory)
    os.rmdir(directory)
    assert eventually(lambda: not left & leftover_files()), (
        f"left behind: {left & leftover_files()}"
    )
