"""The commands: each is the function of its name in the module of its name, and imports late what costs time."""
