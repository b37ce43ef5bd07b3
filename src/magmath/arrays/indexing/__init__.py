"""Indexing: reading and writing parts of arrays by keys, masks included."""
