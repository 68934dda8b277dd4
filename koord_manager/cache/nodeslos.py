"""NodeSLOs by their spec alone: the ConfigMap makes one for all nodes, or one for each group of nodes.

What an API server keeps beside it, who has written which field, is larger than the spec and of no use here.
"""

from __future__ import annotations

from koord.kube.interner import Interner
from koord.kube.kind import Unstructured


class SpecSharing:
    def __init__(self) -> None:
        self._interner = Interner()

    def __call__(self, stored: Unstructured) -> Unstructured:
        content = {"spec": self._interner.intern(stored.content["spec"])} if "spec" in stored.content else {}
        return Unstructured(stored.metadata, content)
