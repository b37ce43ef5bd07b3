"""Definitions without dependencies: data types, shapes, index sets, caches, machine resources."""
