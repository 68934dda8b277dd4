"""The Kubernetes API, for the cluster's processes and for ``qosd.cluster``: a client, informers, leases and events.

From below: ``kind`` and ``reading`` (what there is and what it decodes to; ``schedulingkinds`` for a scheduler),
``credentials`` and ``transport`` (one HTTP exchange), ``listbody`` and ``watch`` (answers that are read in parts),
``client`` (verbs, retries), ``informer`` and ``stream`` (a cache that follows the server, and what changed in it, in
order), ``interner`` (equal parts of cached objects, once), ``workqueue``, ``lease``, ``recorder``.
"""
