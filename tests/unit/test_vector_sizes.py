"""Vectors of other processors: convolutions are right for every size of vectors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from magmath.codegen.vectors import VECTOR_BYTES
from magmath.core.debugging import VECTOR_SIZES
from magmath.core.options import DEBUG

FOLDER = Path(__file__).parent
CHECKS = [
    f"{FOLDER}/test_convolution.py::test_direct_convolution_of_few_channels",
    f"{FOLDER}/test_convolution.py::test_direct_of_groups_strided_views_and_filters",
]


@pytest.mark.parametrize("size", [size for size in VECTOR_SIZES if int(size) != VECTOR_BYTES])
def test_direct_convolutions_with_vectors_of_other_processors(size: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CHECKS],
        env={**os.environ, DEBUG.name: f"vectors={size}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
