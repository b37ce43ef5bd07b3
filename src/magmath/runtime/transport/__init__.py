"""Transports to workers: in this process, as threads, as processes.

Each is imported on first use, so that a script without a pool does not load sockets.
"""
