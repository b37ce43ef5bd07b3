"""Transformations of functions: compiled, differentiated, repeated on the workers."""
