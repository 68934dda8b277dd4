"""From what a runtime says about a container to its cgroup path.

The OCI spec's ``cgroupsPath`` is the truth: ``/kubepods/…/<id>`` with the cgroupfs driver, and
``<slice>:<prefix>:<id>`` with systemd, where the slice's own name spells its parents. Nothing is computed from a
pod's UID when a path was given, because a configured cgroup root changes it.
"""

from __future__ import annotations

from koord.model.slices import SLICE, ancestry


def expand_slice(name: str) -> str:
    """``a-b-c.slice`` as ``/a.slice/a-b.slice/a-b-c.slice``."""
    return "".join(f"/{directory}" for directory in ancestry(name))


def from_cgroups_path(cgroups_path: str) -> str:
    """An OCI ``linux.cgroupsPath`` as a path below the cgroup root; "" stays ""."""
    parts = cgroups_path.split(":")
    if len(parts) != 3:
        return cgroups_path
    parent, prefix, container_id = parts
    scope = f"{prefix}-{container_id}.scope" if prefix else f"{container_id}.scope"
    return f"{expand_slice(parent or 'system.slice')}/{scope}"


def container_path(cgroup_parent: str, container_id: str, prefix: str) -> str:
    """The path a runtime makes of a pod's ``cgroup_parent``; ``prefix`` is ``cri-containerd``, ``crio``, ``docker``."""
    parent = cgroup_parent.rstrip("/")
    basename = parent.rpartition("/")[2]
    if not basename.endswith(SLICE):
        return f"{parent}/{container_id}"
    directory = parent if "/" in parent else expand_slice(basename)
    return f"{directory}/{prefix}-{container_id}.scope"
