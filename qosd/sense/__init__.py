"""Sense: what the node does, read once per tick in one batch into bounded rings."""
