"""Code generation: a compiler to LLVM, vector code, the cache of object code."""
