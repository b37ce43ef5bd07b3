"""Factorisations, solutions and eigenvalues."""
