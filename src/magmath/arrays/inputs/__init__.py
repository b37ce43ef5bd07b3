"""Inputs: users' arrays, numbers and lists, as nodes of the right types."""
