"""The verbs of the command line: one file, one verb; each reads options, calls a stage and prints its result."""
