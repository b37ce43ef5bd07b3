"""The class `Array`: its operators, subscripts, conversions and the protocols of NumPy."""
