"""Compile time: from a recipe and checkpoints to a bundle. May import every other folder."""
