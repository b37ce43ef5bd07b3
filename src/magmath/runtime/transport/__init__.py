"""The ways to reach workers: in this process, as threads of it, as processes.

Each is imported where it is chosen, so that a script without a pool loads no sockets.
"""
