"""Transformations of functions: compilation, gradients, loops and branches, vectorization."""
