"""Convolutions, pooling and their sliding windows."""
