"""Sorting, and the statistics that need it."""
