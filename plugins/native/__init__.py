"""The native library: the CPU kernels of all ops as one onnxruntime custom-op library, and the sampler."""
