"""`python -m magmath.cli` is the command `magmath`."""

from __future__ import annotations

import sys

from magmath.cli.main import main

sys.exit(main())
