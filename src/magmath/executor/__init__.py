"""What runs a program on a worker: ready calls, native code, threads."""
