"""Answers questions about a cluster from its API server; the other commands ask the node's daemon.

Only a command that needs it imports it: an HTTP client costs more than all else that koordctl loads.
"""
