"""Fourier transforms of the tiles of one worker."""
