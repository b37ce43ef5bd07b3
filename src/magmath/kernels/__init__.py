"""Local kernels: matrix products, random numbers, and the tuner that chooses between candidates.

The modules load on first use.
"""
