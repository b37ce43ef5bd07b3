"""Factorisations of one worker and of several."""
