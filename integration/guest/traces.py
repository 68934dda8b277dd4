"""What is left of Koord on a node: snapshots (``inside/snapshot.py``) and how two of them differ.

Invariant: a difference is explained only by an entry of ``OWNERS``, which names who writes such a path without Koord
too; random container ids are taken out first, so that two lives of the same pods compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from integration.guest import payload
from integration.guest.guest import Guest

PROGRAM = f"{payload.ROOT}/repo/integration/guest/inside/snapshot.py"
OWNERS: Mapping[str, str] = {
    r"/run/containerd/.*": "containerd: containers under random ids",
    r"/var/lib/containerd/.*": "containerd: its database and snapshots",
    r"/var/lib/cni/.*": "CNI: addresses in the order of pods",
    r"/var/lib/kubelet/(?!config\.yaml|kubeadm-flags\.env).*": "kubelet: its own state",
    r"/var/lib/dpkg/(status-old|info/[^/]*\.list)": "dpkg: rewritten by whatever package comes or goes",
    r"/run/systemd/(journal|units|transient)(/.*)?": "systemd: running units",
    r"/run/systemd/netif/.*": "systemd-networkd: the pods' links",
}
_ID = re.compile(r"[0-9a-f]{64}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One node at one moment: maps of the same names as in the program's output."""

    files: Mapping[str, str]
    cgroups: Mapping[str, str]
    rest: Mapping[str, Any] = field(default_factory=dict)


def take(guest: Guest) -> Snapshot:
    found = json.loads(guest.do("python3", "-B", PROGRAM, timeout_s=300))
    files = {_ID.sub("ID", path): value for path, value in found.pop("files").items()}
    found["mounts"] = sorted({_ID.sub("ID", path) for path in found["mounts"]})
    return Snapshot(files, found.pop("cgroups"), found)


def differences(before: Snapshot, after: Snapshot) -> dict[str, tuple[object, object]]:
    """All paths (and other parts, by name) that differ, with both values; None where a path is absent."""
    found: dict[str, tuple[object, object]] = {}
    for one, other in ((before.files, after.files), (before.cgroups, after.cgroups), (before.rest, after.rest)):
        for name in sorted({*one, *other}):
            if one.get(name) != other.get(name):
                found[name] = (one.get(name), other.get(name))
    return found


def unexplained(found: Mapping[str, tuple[object, object]]) -> dict[str, tuple[object, object]]:
    """Changes that only Koord can have made."""
    return {name: values for name, values in found.items() if owner(name) is None}


def owner(path: str) -> str | None:
    return next((who for pattern, who in OWNERS.items() if re.fullmatch(pattern, path)), None)


def unused(found: Iterable[str]) -> Iterator[str]:
    """The entries of ``OWNERS`` that none of these paths needs."""
    paths = list(found)
    return (pattern for pattern in OWNERS if not any(re.fullmatch(pattern, path) for path in paths))
