"""Code for the processor itself: a compiler, vectors in LLVM's language, what is kept on disk."""
