"""The functions of the NumPy-like namespace, one file per family."""
