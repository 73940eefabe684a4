"""Coupled sampling of one step: native passes over rows of logits; `runtime/sample.py` is the way in."""
