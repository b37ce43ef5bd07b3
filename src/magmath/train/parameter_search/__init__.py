"""Parameter search: trials of a network with different settings, compared by their loss curves.

`space.py` has the settings, `curve.py` the metric, `proposals.py` the order of the trials,
`trial_run.py` the run of one trial, `search.py` the loop over trials, `database.py` the file from
which an interrupted search continues, `results.py` and `plots.py` the output.
"""

from magmath.train.parameter_search.curve import LossCurve
from magmath.train.parameter_search.plots import histograms, matrices
from magmath.train.parameter_search.results import SearchResults, Trial
from magmath.train.parameter_search.search import search

__all__ = ["LossCurve", "SearchResults", "Trial", "histograms", "matrices", "search"]
