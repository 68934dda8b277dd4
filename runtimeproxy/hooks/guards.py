"""What no hook server may do, whatever it answers.

* ``io.kubernetes.*`` keys belong to kubelet: it finds its containers by them and restarts one whose hash changed.
* A cgroup parent outside the pod's own tree breaks kubelet's accounting and clean-up, so it is refused unless the
  configuration allows that tree. Both path styles are understood; a change of style is refused.
* Values the runtime would reject are refused before they can fail a pod.
* A variable that was hidden from the servers (its value is not UTF-8) keeps its value.

Pure: ``Guard.refusal`` says why, the chain drops, counts and logs. Invariant: a dropped edit leaves the request's own
value, it never fails the call.
"""

from __future__ import annotations

from dataclasses import dataclass

from koord.model.slices import SLICE, ancestry
from runtimeproxy.hooks.edits import (
    ANNOTATIONS,
    CGROUP_PARENT,
    CPUSETS,
    ENVS,
    HUGEPAGE_LIMITS,
    LABELS,
    RESOURCE_INTS,
    Slot,
    Value,
)

KUBELET_PREFIX = "io.kubernetes."
OOM_SCORE_ADJ = (-1000, 1000)
UNLIMITED = -1
CPUSET_CHARACTERS = frozenset("0123456789,-")


@dataclass(frozen=True, slots=True)
class Guard:
    """``owned``: the fields of this request that may change; ``cgroup_parent``: the one kubelet gave the pod;
    ``foreign_parents``: others are allowed; ``hidden_envs``: names of variables no server saw."""

    owned: frozenset[str]
    cgroup_parent: str = ""
    foreign_parents: bool = False
    hidden_envs: frozenset[str] = frozenset()

    def refusal(self, slot: Slot, value: Value) -> str | None:
        """Why this edit must not be made, as the metric's label; None if it may."""
        if slot.field in (ANNOTATIONS, LABELS) and slot.key.startswith(KUBELET_PREFIX):
            return "key"
        if slot.field == CGROUP_PARENT:
            return None if self._parent_allowed(str(value)) else "cgroup_parent"
        if slot.field == ENVS:
            return "hidden_env" if slot.key in self.hidden_envs else _env_refusal(slot.key, value)
        return None if _value_fits(slot, value) else "value"

    def _parent_allowed(self, parent: str) -> bool:
        return (self.foreign_parents and components(parent) is not None) or within(parent, self.cgroup_parent)


def within(parent: str, tree: str) -> bool:
    """Is the cgroup ``parent`` the cgroup ``tree`` or below it, in the same style (cgroupfs or systemd)?"""
    inner, outer = components(parent), components(tree)
    if inner is None or outer is None:
        return False
    if outer[-1].endswith(SLICE) != inner[-1].endswith(SLICE):
        return False
    return inner[: len(outer)] == outer


def components(path: str) -> list[str] | None:
    """The directories of a cgroup path; a bare slice name (systemd's short form) is expanded to its full path.

    None for what is no path below the root: empty, or with ``.`` or ``..`` in it.
    """
    parts = [part for part in path.split("/") if part]
    if not parts or any(part in (".", "..") for part in parts) or "\0" in path:
        return None
    if len(parts) == 1 and parts[0].endswith(SLICE):
        return ancestry(parts[0])
    return parts


def _env_refusal(name: str, value: Value) -> str | None:
    bad = not name or "=" in name or "\0" in name or (isinstance(value, bytes) and b"\0" in value)
    return "value" if bad else None


def _value_fits(slot: Slot, value: Value) -> bool:
    if slot.field == "oom_score_adj":
        return isinstance(value, int) and OOM_SCORE_ADJ[0] <= value <= OOM_SCORE_ADJ[1]
    if slot.field in RESOURCE_INTS:
        return isinstance(value, int) and value >= UNLIMITED
    if slot.field in CPUSETS:
        return isinstance(value, str) and CPUSET_CHARACTERS.issuperset(value)
    return slot.field != HUGEPAGE_LIMITS or (isinstance(value, int) and value >= 0)
