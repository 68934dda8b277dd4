"""Holds the commands: each is a function of its name, and imports late what costs time."""
