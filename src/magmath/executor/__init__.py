"""The execution of programs on a worker: ready calls, native code, and teams of threads."""
