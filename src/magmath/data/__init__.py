"""Data sets for examples and benchmarks, and readers for the files they come in.

Everything here yields plain NumPy arrays in the controller's process; `fit` ships them to the
workers. Nothing is downloaded: a data set that is not on the machine is an error that says where
it was looked for and how to get it.
"""

from __future__ import annotations

from magmath.data.csv import read_csv_numpy
from magmath.data.idx import read_idx
from magmath.data.sets import Dataset, load

__all__ = ["Dataset", "load", "read_csv_numpy", "read_idx"]
