"""The passes between a user's graph and a program, one a file; `pipeline.py` runs them."""
