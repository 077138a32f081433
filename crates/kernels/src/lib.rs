//! Compute kernels that work directly on GGUF-quantised weights.
