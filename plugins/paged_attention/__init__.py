"""Attention over pages: rotate, write new keys and values, attend; ragged, in place."""
