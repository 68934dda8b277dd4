"""Brings kernel files to what is wanted of them, and back: one state a file, one pure step, ``plan`` and ``apply``."""
