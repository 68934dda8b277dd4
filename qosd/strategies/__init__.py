"""Strategies: pure functions from a snapshot to one opinion per kernel file (``qosd.decide.decision``)."""
