"""qosd in a cluster: what it reads from the API server, reports to it and asks of it.

Imported late, by who names a cluster; nothing else of qosd knows ``koord.kube``. Invariant: the node works without any
of it, and goes on when it fails.
"""
