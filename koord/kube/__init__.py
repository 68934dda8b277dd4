"""The Kubernetes API, for the cluster's processes and for ``qosd.cluster``: a client, informers, leases and events.

From below: ``kind`` and ``reading`` (what there is and what it decodes to), ``credentials`` and ``transport`` (one
HTTP exchange), ``client`` (verbs, retries), ``informer`` and ``stream`` (a cache that follows the server, and what
changed in it, in order), ``workqueue``, ``lease``, ``recorder``.
"""
