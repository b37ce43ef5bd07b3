"""Factorizations of one worker and of several."""
