"""The nodes of a cluster, one line each."""

from __future__ import annotations

from koordctl.cluster.nodes import NODES

__all__ = ["NODES"]
