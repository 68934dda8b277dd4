"""Koord's vocabulary as pure functions and frozen values: QoS, priority, quantities, CPU sets, annotations, NodeSLO.

Invariant: nothing here reads a clock, a file or the network, and nothing of ours is imported, so every rule can be
tested as a table. ``annotations``, ``slo``, ``strategies`` and ``schema`` need msgspec; the other modules need only
the standard library, because the runtime proxy may use them.
"""
