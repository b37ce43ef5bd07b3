"""The functions of the NumPy-like namespace, a file a family."""
