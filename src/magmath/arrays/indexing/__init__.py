"""Indexing: reading and writing parts of arrays by indices, masks included."""
