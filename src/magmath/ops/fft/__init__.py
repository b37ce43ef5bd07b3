"""Fourier transforms of any length."""
