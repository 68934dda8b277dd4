"""Reads the verbose status of a container runtime: JSON of its own, under the key ``info`` of CRI's answers.

containerd's and cri-o's are understood; both show the OCI specification, which every runtime updates (CRI's own field
came with containerd 1.7). Invariant: a piece that is missing, or of another type than expected, reads as not set. Only
``parse`` raises: ValueError, where the text is no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from koord.model.documents import at, mapping
from koord.model.slices import from_cgroups_path

_INT64 = range(-(1 << 63), 1 << 63)


def parse(info: Mapping[str, str]) -> Mapping[str, Any]:
    """Returns the object that the runtime tells; {} if it tells none, or another value."""
    try:
        found = json.loads(info.get("info", "{}"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return found if isinstance(found, dict) else {}


def parse_or_empty(info: Mapping[str, str]) -> Mapping[str, Any]:
    """Parses as ``parse`` does; {} where the text is no JSON."""
    try:
        return parse(info)
    except ValueError:
        return {}


def text(document: Any, *path: str) -> str:
    """Returns the string at ``path``; "" if there is none that UTF-8 can say (JSON can hold lone surrogates)."""
    found = at(document, *path)
    return found if isinstance(found, str) and is_unicode(found) else ""


def number(document: Any, *path: str, within: range = _INT64) -> int | None:
    """Returns the integer at ``path``; None if there is none ``within`` the range."""
    found = at(document, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found in within else None


def is_unicode(string: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in string)


def cgroup(document: Mapping[str, Any]) -> str:
    """Returns the cgroup path of the container or sandbox; "" if the runtime does not tell."""
    return from_cgroups_path(text(document, "runtimeSpec", "linux", "cgroupsPath"))


def spec_resources(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the resources of the OCI specification; None if the runtime does not tell."""
    found = at(document, "runtimeSpec", "linux", "resources")
    return found if isinstance(found, dict) else None


def requested_resources(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the resources that kubelet requested, as CRI names them (containerd only)."""
    return mapping(document, "config", "linux", "resources")
