"""The plain values that all parts of koord-qosd share: pods, the effective policy, metrics, the node at one instant.

Invariant: it imports no other part of koord-qosd.
"""
