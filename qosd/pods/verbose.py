"""What a runtime's verbose status says beyond CRI: its own JSON under the key ``info``.

containerd's and cri-o's are understood; both show the OCI spec. Invariant: whatever the text is, a piece that cannot
be read is absent and nothing raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from koord.host import paths
from koord.model.crifields import NUMBERS, Field
from qosd.hooks import normalization
from qosd.model.pod import Resources

_MARKS = (normalization.ANNOTATION,)
_SPEC = ("runtimeSpec", "linux")


def document(info: Mapping[str, str], key: str = "info") -> Mapping[str, Any]:
    """The JSON object under ``key``; {} for anything else."""
    try:
        found = json.loads(info.get(key, ""))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def cgroup(info: Mapping[str, Any]) -> str:
    """The cgroup path of the container or sandbox; "" if the runtime does not tell."""
    return paths.from_cgroups_path(_text(info, (*_SPEC, "cgroupsPath")))


def resources(info: Mapping[str, Any]) -> Resources:
    """From the OCI spec, which every runtime shows and updates (CRI's own field came with containerd 1.7)."""
    spec = at(info, (*_SPEC, "resources"))
    return Resources.of({field: _number(spec, field.path) for field in NUMBERS})


def cpus(info: Mapping[str, Any]) -> str:
    """The CPU set of the OCI spec, whoever asked for it, an NRI plugin too; "" = none."""
    return _text(info, (*_SPEC, "resources", *Field.CPUSET_CPUS.path))


def pod_resources(info: Mapping[str, Any]) -> Resources:
    """Of a sandbox: what kubelet requested for the pod as a whole (containerd only)."""
    requested = at(info, ("config", "linux", "resources"))
    return Resources.of({field: _number(requested, (field.value,)) for field in NUMBERS})


def marks(info: Mapping[str, Any]) -> Mapping[str, str]:
    """Koord's own annotations of the OCI spec: what an NRI plugin adds stands there and in no list of the runtime's."""
    found = {key: _text(info, ("runtimeSpec", "annotations", key)) for key in _MARKS}
    return {key: text for key, text in found.items() if text}


def cgroup_parent(info: Mapping[str, Any]) -> str:
    """Of a sandbox: containerd shows its configuration; cri-o only the spec, whose path's parent it is."""
    return _text(info, ("config", "linux", "cgroup_parent")) or cgroup(info).rpartition("/")[0]


def at(document: Any, path: Sequence[str]) -> Any:
    """What stands at ``path``; None if anything on the way is missing or no object."""
    for key in path:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def _text(document: Any, path: Sequence[str]) -> str:
    text = at(document, path)
    return text if isinstance(text, str) else ""


def _number(document: Any, path: Sequence[str]) -> int | None:
    number = at(document, path)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
