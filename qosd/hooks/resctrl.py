"""The resctrl class, by the pod annotation that containerd and cri-o read when they start its containers.

Only where it is known to work: the rules say that the runtime's RDT support was verified, the group exists, and the
class has ``resctrlQOS`` enabled. A pod with a group of its own, or that already names a class, keeps it.
"""

from __future__ import annotations

from koord.model.annotations import keys
from koord.model.qos import QoSClass
from qosd.hooks.context import PodContext
from qosd.hooks.edits import Edit, Edits, Field
from qosd.hooks.rules import Rules

ANNOTATION = "rdt.resources.beta.kubernetes.io/pod"
_GROUPS = {QoSClass.LSE: "LSR", QoSClass.LSR: "LSR", QoSClass.LS: "LS", QoSClass.BE: "BE"}


def decide(pod: PodContext, rules: Rules) -> Edits:
    qos = pod.treated_as(rules.node.derivation)
    group = _GROUPS.get(qos)
    settings = rules.class_settings(qos).resctrl_qos
    wanted = settings is not None and bool(settings.enable)
    possible = rules.node.rdt_verified and group in rules.host.resctrl_groups
    chosen_already = ANNOTATION in pod.request.annotations or keys.RESCTRL in pod.request.annotations
    if group is None or not wanted or not possible or chosen_already:
        return Edits()
    return Edits((Edit(Field.ANNOTATION, group, f"{qos} pods belong to resctrl group {group}", key=ANNOTATION),))
