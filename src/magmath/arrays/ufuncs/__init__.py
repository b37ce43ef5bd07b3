"""The methods and arguments of NumPy's universal functions."""
