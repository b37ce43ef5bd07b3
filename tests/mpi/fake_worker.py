"""A worker process that runs fake programs; in tests of pools, the launcher starts it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from magmath.runtime import worker_exit
from magmath.runtime.process import main
from pool_fakes import FakeExecutable

if __name__ == "__main__":
    worker_exit.STUCK_SECONDS = int(os.environ.get("STUCK_SECONDS", "10"))  # type: ignore[misc]
    sys.exit(main(load=FakeExecutable))
