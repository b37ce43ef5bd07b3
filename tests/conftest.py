"""Settings for every test: no time limits but the watchdog, plots without a display."""

from __future__ import annotations

import os

from hypothesis import settings

# A slow or busy machine is no failure: the only clock is the watchdog in pyproject.toml.
settings.register_profile("magmath", deadline=None, max_examples=50)
settings.load_profile("magmath")

os.environ.setdefault("MPLBACKEND", "Agg")
# Tests of native code compile it themselves; the others must not keep a compiler busy.
os.environ["MAGMATH_COMPILE_AFTER"] = "inf"
