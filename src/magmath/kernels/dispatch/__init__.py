"""Kernel dispatch: the registry of candidates for each operation, and the tuner."""
