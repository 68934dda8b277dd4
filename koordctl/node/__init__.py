"""What koordctl knows of a node, read once: ``collect`` makes ``facts``, which doctor judges and install plans by.

The node is this one, a host mount, or a recorded tree. A fact that cannot be had is None or empty, never an error.
"""
