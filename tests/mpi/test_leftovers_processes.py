"""Cases in which the fixture `no_leftovers` must fail, so that the tests with it can fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from processes import eventually, leftover_files, started_with

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_file_is_a_leftover_unless_another_process_has_it_open() -> None:
    file = Path(f"/dev/shm/magmath-test-{os.getpid()}")
    with file.open("wb") as opened:
        try:
            assert file in leftover_files(), "what this process has open it must remove"
            other = subprocess.Popen(SLEEP, stdout=opened)
            assert eventually(lambda: file not in leftover_files())
            other.kill()
            other.wait()
            assert file in leftover_files()
        finally:
            file.unlink()
    assert file not in leftover_files()


def test_a_process_is_known_by_the_environment_in_which_it_began() -> None:
    other = subprocess.Popen(SLEEP, env=os.environ | {"MAGMATH_TEST_MARK": "one two"})
    assert eventually(lambda: started_with("MAGMATH_TEST_MARK", "one two") == [other.pid])
    assert not started_with("MAGMATH_TEST_MARK", "one")
    other.kill()
    other.wait()
    assert not started_with("MAGMATH_TEST_MARK", "one two")
