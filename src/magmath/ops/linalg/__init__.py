"""Factorizations, solutions and eigenvalues."""
