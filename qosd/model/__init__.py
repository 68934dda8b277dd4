"""What all parts of koord-qosd speak of: pods, the policy in force, metrics, and the node at one instant. Plain values.

Invariant: it imports no other part of koord-qosd.
"""
