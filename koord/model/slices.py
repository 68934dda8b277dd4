"""Spells cgroup paths as systemd and container runtimes do.

systemd spells a slice's parents in its name: ``a-b.slice`` lies in ``a.slice`` (systemd.slice(5)). Of a container the
OCI specification's ``cgroupsPath`` is the truth: ``/kubepods/…/<id>`` with the cgroupfs driver, and
``<slice>:<prefix>:<id>`` with systemd. Nothing is computed from a pod's UID where a path was given, because a
configured cgroup root changes it.
"""

from __future__ import annotations

SLICE = ".slice"


def ancestry(name: str) -> list[str]:
    """Returns the slices from the root: ``a-b-c.slice`` gives ``a.slice``, ``a-b.slice``, ``a-b-c.slice``."""
    parts = name.removesuffix(SLICE).split("-")
    return ["-".join(parts[:count]) + SLICE for count in range(1, len(parts) + 1)]


def expand_slice(name: str) -> str:
    """Returns ``a-b-c.slice`` as ``/a.slice/a-b.slice/a-b-c.slice``."""
    return "".join(f"/{directory}" for directory in ancestry(name))


def from_cgroups_path(cgroups_path: str) -> str:
    """Returns an OCI ``linux.cgroupsPath`` as a path below the cgroup root; "" stays ""."""
    parts = cgroups_path.split(":")
    if len(parts) != 3:
        return cgroups_path
    parent, prefix, container_id = parts
    scope = f"{prefix}-{container_id}.scope" if prefix else f"{container_id}.scope"
    return f"{expand_slice(parent or 'system.slice')}/{scope}"


def container_path(cgroup_parent: str, container_id: str, prefix: str) -> str:
    """Returns the path that a runtime makes of a pod's ``cgroup_parent``.

    ``prefix`` is ``cri-containerd``, ``crio`` or ``docker``.
    """
    parent = cgroup_parent.rstrip("/")
    basename = parent.rpartition("/")[2]
    if not basename.endswith(SLICE):
        return f"{parent}/{container_id}"
    directory = parent if "/" in parent else expand_slice(basename)
    return f"{directory}/{prefix}-{container_id}.scope"
