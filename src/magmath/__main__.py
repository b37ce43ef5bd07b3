"""`python -m magmath`: the command `magmath`."""

from __future__ import annotations

import sys

from magmath.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
