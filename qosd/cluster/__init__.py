"""qosd in a cluster: it reads objects from the API server, reports to it and asks it for evictions.

It is imported late, and only where a cluster is named; nothing else of qosd knows ``koord.kube``. Invariant: the node
works without any of it, and goes on when it fails.
"""
