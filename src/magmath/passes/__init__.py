"""The passes from a user's graph to a planned one, one per file; `pipeline.py` runs them."""
