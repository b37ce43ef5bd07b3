"""Protocols: Python's operators, NumPy's methods and functions, and the array API's namespace."""
