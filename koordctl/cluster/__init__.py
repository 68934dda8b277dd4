"""Answers about a cluster, read from its API server; the other commands ask the node's daemon.

It is imported by a command that needs it, since an HTTP client costs more than all else that koordctl loads.
"""
