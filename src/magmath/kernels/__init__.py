"""Kernels that compute one operation on the tiles of one worker, and their collective variants.

They include matrix products, factorizations, Fourier transforms, sorting and random numbers, and
the tuner that chooses between candidates. The modules are loaded on first use.
"""
