"""Which pods run in a virtual machine of their own, as Kata Containers makes it: THE place that says so.

The cgroups of such a pod hold the machine and not what runs in it, so what Koord measures and sets there is not the
containers'. The runtime tells the handler, kubelet the runtime class, which is named after it as a rule.
"""

from __future__ import annotations

from qosd.model.policy import NodeSettings
from qosd.model.snapshot import PodView

_PREFIX = "kata"
"""Kata's own handlers: kata, kata-qemu, kata-clh, kata-fc…"""


def is_kata(pod: PodView, node: NodeSettings) -> bool:
    """Is its handler or runtime class one of Kata's own, or named by the policy (``sandboxSizingHandlers``)?"""
    return any(
        name.startswith(_PREFIX) or name in node.sandbox_sizing_handlers
        for name in (pod.runtime_handler, pod.facts.runtime_class)
        if name
    )
