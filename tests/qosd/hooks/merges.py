"""How the two proxies lay a hook's answer over a request: Koordinator's runtime proxy and ours, as doubles."""

from __future__ import annotations

from typing import Any

from koord.pb.hooks import api_pb2 as hooks

_POSITIVE = ("cpu_period", "cpu_shares", "memory_limit_in_bytes", "memory_swap_limit_in_bytes")
_SCALARS = (*_POSITIVE, "cpu_quota", "oom_score_adj", "cpuset_cpus", "cpuset_mems")


def plain(resources: hooks.LinuxContainerResources) -> dict[str, Any]:
    return {**{name: getattr(resources, name) for name in _SCALARS}, "unified": dict(resources.unified)}


def go(base: hooks.LinuxContainerResources, answer: hooks.LinuxContainerResources) -> dict[str, Any]:
    """Koordinator's proxy: an answer's resources over the request's."""
    merged = plain(base)
    for name in _POSITIVE:
        if getattr(answer, name) > 0:
            merged[name] = getattr(answer, name)
    if answer.cpu_quota != 0:
        merged["cpu_quota"] = answer.cpu_quota
    if -1000 <= answer.oom_score_adj <= 1000:
        merged["oom_score_adj"] = answer.oom_score_adj
    merged["cpuset_cpus"], merged["cpuset_mems"] = answer.cpuset_cpus, answer.cpuset_mems
    merged["unified"] = {**merged["unified"], **answer.unified}
    return merged


def presence(base: hooks.LinuxContainerResources, answer: hooks.LinuxContainerResources) -> dict[str, Any]:
    """Ours: what is present counts, explicit 0 and "" included."""
    merged = plain(base)
    merged |= {name: getattr(answer, name) for name in _SCALARS if answer.HasField(name)}
    merged["unified"] = {**merged["unified"], **answer.unified}
    return merged
