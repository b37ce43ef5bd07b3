"""The other frameworks, each used as its documentation recommends for speed.

These modules may run in another environment, without magmath: they import nothing of magmath except
each other and the texts in `bench/numpy_programs/`.
"""
