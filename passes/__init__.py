"""Graph to graph: one file, one pass; `pipeline.py` holds the order."""
