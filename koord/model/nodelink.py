"""What both ends of NodeLink agree on: names, and how often a node reports.

A node finds the leading manager by one object that it may read, the manager's Lease: the holder's identity carries the
address, an annotation the authorities of the manager's certificate. Any replica's certificate is for ``SERVER_NAME``.
"""

from __future__ import annotations

LEASE_NAME = "koordinator-manager"

CA_ANNOTATION = "koord.sh/nodelink-ca"
SERVER_NAME = "nodelink.koord.sh"
SIGNER = "koord.sh/nodelink"
"""The signer of nodes' certificates, which they request with kubelet's credential, or as a pod with their own."""

CERTIFICATE_LIFETIME_S = 86_400
"""They cannot be withdrawn, but cost next to nothing to renew."""

NODE_USER, NODE_GROUP = "system:node:", "system:nodes"
"""Who a node is to the API server: the prefix of its name, and its group."""

SCHEDULER_GROUP = "koord.sh:schedulers"
"""The organization of schedulers' certificates, for ClusterState on the same port; the name is their account's."""

REPORT_INTERVAL_S = 5.0
STALE_S = 3 * REPORT_INTERVAL_S
"""An older figure counts as none."""
