"""Eager evaluation: small arrays are computed at their line, in the controller's process."""
