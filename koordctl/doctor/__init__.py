"""Doctor: what Koord assumes of a node, checked. ``collect`` reads the node once, ``checks`` judges what was read.

Checks are pure functions of Facts, so that recorded trees of other nodes can be judged as well. A fact that cannot be
had is None or empty, never an error.
"""
