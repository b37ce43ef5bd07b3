"""The experiments of the papers, repeated on this machine: `magmath reproduce`.

An experiment is a module with an `EXPERIMENT` (`experiment.py`) and a row of the table below. It
computes with the public names, and measures and plans with those of `bench`, `cost` and `parallel`.
Its `run` returns a `Section` (`section.py`) of text, tables, plots and findings. `report.py` runs
experiments, `page.py` writes the report as one HTML page.
"""

from __future__ import annotations

from magmath.reproduce import (
    dmath_table1,
    magmadnn_layers,
    shm_cifar10,
    shm_neuron,
    shm_realign,
    shm_search,
)
from magmath.reproduce.experiment import Experiment, Options

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        magmadnn_layers.EXPERIMENT,
        shm_neuron.EXPERIMENT,
        shm_realign.EXPERIMENT,
        shm_search.EXPERIMENT,
        shm_cifar10.EXPERIMENT,
        dmath_table1.EXPERIMENT,
    )
}

__all__ = ["EXPERIMENTS", "Experiment", "Options"]
