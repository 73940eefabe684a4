"""Ops that graphs need and compilers lack: one folder per op, with its schema, its meaning and its kernels."""
