"""Code for the processor itself, written in LLVM's IR: vectors, raw memory, copies."""
