"""The execution of programs on a worker: bound calls, native code, and teams of threads."""
