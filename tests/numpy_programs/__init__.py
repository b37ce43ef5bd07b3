"""Programs for NumPy, how to run them with another library, and the comparison of results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PROGRAMS = sorted(set(Path(__file__).parent.glob("*.py")) - {Path(__file__)})


def result(program: Path, library: str) -> Any:
    """What `main` returns, with the import of the library."""
    source = program.read_text()
    assert source.count("import numpy as np") == 1
    names: dict[str, Any] = {}
    code = source.replace("import numpy as np", f"import {library} as np")
    exec(compile(code, program.name, "exec"), names)
    return names["main"]()


def compare(ours: Any, theirs: Any, limit: float) -> None:
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            compare(mine, other, limit)
        return
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=limit, atol=limit)
