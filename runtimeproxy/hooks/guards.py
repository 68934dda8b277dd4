"""Refuses the edits that no hook server may make.

* ``io.kubernetes.*`` keys belong to kubelet: it finds its containers by them and restarts one whose hash changed.
* A cgroup parent outside the pod's own tree breaks kubelet's accounting and clean-up, so it is refused unless the
  configuration allows that tree (``cgroupparents``).
* Values the runtime would reject are refused before they can fail a pod (``values``).
* A variable that was hidden from the servers (its value is not UTF-8) keeps its value.

Pure: ``EditGuard.refusal`` says why, the chain drops, counts and logs. Invariant: a dropped edit leaves the request's
own value, it never fails the call.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtimeproxy.hooks.cgroupparents import components, same_style, within
from runtimeproxy.hooks.edits import ANNOTATIONS, CGROUP_PARENT, ENVS, KUBELET_PREFIX, LABELS, Slot, Value
from runtimeproxy.hooks.values import acceptable


@dataclass(frozen=True, slots=True)
class EditGuard:
    """Judges edits of one request. ``editable``: the fields that may change; ``cgroup_parent``: the one kubelet gave
    the pod; ``foreign_parents``: others are allowed; ``hidden_envs``: names of variables no server saw.
    """

    editable: frozenset[str]
    cgroup_parent: str = ""
    foreign_parents: bool = False
    hidden_envs: frozenset[str] = frozenset()

    def refusal(self, slot: Slot, value: Value) -> str | None:
        """Returns why this edit must not be made, as the metric's label; None if it may."""
        if slot.field in (ANNOTATIONS, LABELS) and slot.key.startswith(KUBELET_PREFIX):
            return "key"
        if slot.field == CGROUP_PARENT:
            return None if self._parent_allowed(str(value)) else "cgroup_parent"
        if slot.field == ENVS and slot.key in self.hidden_envs:
            return "hidden_env"
        return None if acceptable(slot, value) else "value"

    def _parent_allowed(self, parent: str) -> bool:
        if not self.foreign_parents:
            return within(parent, self.cgroup_parent)
        return components(parent) is not None and (not self.cgroup_parent or same_style(parent, self.cgroup_parent))
