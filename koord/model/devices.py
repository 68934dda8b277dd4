"""Resources of devices that Koordinator's manager writes onto Nodes, as its Device objects say.

No part of this release writes or rewrites any. They are known here so that a Node that still shows them, and a pod that
requests them, are told.
"""

from __future__ import annotations

from collections.abc import Iterable

GPU = "koordinator.sh/gpu"
"""Its webhook makes ``gpu-core`` and ``gpu-memory-ratio`` of this in pods."""

RESOURCES = (
    GPU,
    *(f"koordinator.sh/{name}" for name in ("gpu-core", "gpu-memory", "gpu-memory-ratio", "gpu.shared", "rdma")),
    *(f"huawei.com/{name}" for name in ("npu-core", "npu-cpu", "npu-dvpp")),
    *(f"kubernetes.io/{name}" for name in ("gpu", "gpu-core", "gpu-memory", "gpu-memory-ratio", "rdma")),
)
"""Those of ``kubernetes.io`` are older names."""


def among(names: Iterable[str]) -> tuple[str, ...]:
    """Returns those of ``names`` that are such resources, in their order."""
    return tuple(name for name in names if name in RESOURCES)
