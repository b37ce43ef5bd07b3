"""Modules of PyTorch as modules of magmath."""
