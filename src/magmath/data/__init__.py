"""Data sets for examples and benchmarks, and readers of their file formats.

`load` returns NumPy arrays in the controller's process, which `fit` sends to the workers;
`read_csv` loads a table on the workers directly. Nothing is downloaded: a missing data set raises
an error with the searched locations and the way to get it.
"""

from __future__ import annotations

from magmath.data.csv import read_csv
from magmath.data.datasets import Dataset, load
from magmath.data.idx import read_idx

__all__ = ["Dataset", "load", "read_csv", "read_idx"]
