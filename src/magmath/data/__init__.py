"""Data sets for examples and benchmarks, and readers for the files they come in.

`load` yields plain NumPy arrays in the controller's process, which `fit` ships to the workers;
`read_csv` puts a table there itself. Nothing is downloaded: a data set that is not on the machine
is an error that says where it was looked for and how to get it.
"""

from __future__ import annotations

from magmath.data.csv import read_csv
from magmath.data.datasets import Dataset, load
from magmath.data.idx import read_idx

__all__ = ["Dataset", "load", "read_csv", "read_idx"]
