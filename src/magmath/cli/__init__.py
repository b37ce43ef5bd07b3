"""The command `magmath`: one module for each sub-command, on top of the public names.

Nothing here imports torch or NumPy before a sub-command runs, so that help appears at once.
"""
