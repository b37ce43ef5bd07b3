"""Exports: arrays as text, as pickled values, and as arrays of other libraries."""
