"""Traces of functions: the variables, arrays and random numbers that a traced function reads and
changes."""
