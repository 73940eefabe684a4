"""Paceline: compile a target model and its draft into one bundle, and ride them together."""

__all__ = ["__version__"]

__version__ = "0.1.0"
