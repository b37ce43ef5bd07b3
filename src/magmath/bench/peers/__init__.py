"""The other frameworks, each trained as its own documentation recommends for speed.

These modules may run in another environment, where magmath is not installed: they use nothing of
magmath but each other.
"""
