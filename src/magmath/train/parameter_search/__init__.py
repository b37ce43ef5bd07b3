"""Parameter search: trials of a network with different settings, compared by their loss curves.

`space.py` has the settings, `curve.py` the metric, `proposals.py` the order of trials,
`database.py` what survives a kill, `search.py` the search, `results.py` and `plots.py` its output.
"""

from magmath.train.parameter_search.curve import LossCurve
from magmath.train.parameter_search.results import SearchResults, Trial
from magmath.train.parameter_search.search import search

__all__ = ["LossCurve", "SearchResults", "Trial", "search"]
