"""NodeSLOs by their spec alone: the ConfigMap makes one for all nodes, or one for each group of nodes.

What an API server keeps beside it, who has written which field, is larger than the spec and of no use here.
"""

from __future__ import annotations

from koord.kube.kind import Unstructured
from koord_manager.kept.parts import Parts


class SpecSharing:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def __call__(self, stored: Unstructured) -> Unstructured:
        content = stored.content
        return Unstructured(stored.metadata, {"spec": self._parts.one(content["spec"])} if "spec" in content else {})
