"""Storages: the arrays that share elements, and updates in place that fail."""
