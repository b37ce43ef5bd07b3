"""The command `magmath`: one module for each sub-command.

No module imports torch or NumPy before a sub-command runs, so that help appears immediately.
"""
