"""Which QoS class a pod has, and why: from its label, else from its Kubernetes QoS class.

``labelled`` is what the label says, or none. ``derive`` always finds a class and the
sentence that says where it came from, because operators ask. Unlabelled Guaranteed pods count as LS, and as LSR only
while they run where kubelet's CPU manager is ``static``; upstream's newer mapping (always LSR) is a setting.

Invariant: a label value that is no class counts as no label; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

LABEL_QOS = "koordinator.sh/qosClass"


class QoSClass(StrEnum):
    LSE = "LSE"
    """CPUs of its own, shared with no other pod."""
    LSR = "LSR"
    """CPUs of its own, shared with BE only."""
    LS = "LS"
    """The shared pool of latency-sensitive pods."""
    BE = "BE"
    """Best effort: all CPUs but those of LSE, as far as LS leaves them."""
    SYSTEM = "SYSTEM"
    """System daemons: latency is guaranteed and use is limited; the node's system CPUs where it has some."""


_BY_NAME = {cls.value: cls for cls in QoSClass}


class KubeQoS(StrEnum):
    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class DerivationRules:
    """How an unlabelled Guaranteed pod counts on this node."""

    cpu_manager_static: bool = False
    guaranteed_is_lsr: bool = False
    """Upstream's newer mapping: Guaranteed counts as LSR whatever kubelet's CPU manager does."""


@dataclass(frozen=True, slots=True)
class DerivedQoS:
    """A class and the source of it, such as "label" or "kubernetes QoS Guaranteed"."""

    qos: QoSClass
    source: str
    labelled: bool

    @property
    def raw(self) -> QoSClass | None:
        """The class when the label said so, else None: what hooks and suppression go by."""
        return self.qos if self.labelled else None


def parse(text: str | None) -> QoSClass | None:
    """The class that ``text`` names; None for anything else. Case matters, as in Koordinator."""
    return _BY_NAME.get(text or "")


def labelled(labels: Mapping[str, str]) -> QoSClass | None:
    """The raw class: the label's value when it is a class."""
    return parse(labels.get(LABEL_QOS))


def derive(
    raw: QoSClass | None, kube: KubeQoS, *, running: bool = True, rules: DerivationRules | None = None
) -> DerivedQoS:
    """The class of a pod with raw class ``raw`` and Kubernetes QoS ``kube``. No ``rules`` = CPU manager ``none``."""
    if raw is not None:
        return DerivedQoS(raw, "label", True)
    source = f"kubernetes QoS {kube.value}"
    if kube is KubeQoS.BEST_EFFORT:
        return DerivedQoS(QoSClass.BE, source, False)
    if kube is KubeQoS.BURSTABLE:
        return DerivedQoS(QoSClass.LS, source, False)
    chosen = rules or DerivationRules()
    if chosen.guaranteed_is_lsr:
        return DerivedQoS(QoSClass.LSR, f"{source}, by setting", False)
    if chosen.cpu_manager_static and running:
        return DerivedQoS(QoSClass.LSR, f"{source}, running under CPU manager static", False)
    return DerivedQoS(QoSClass.LS, source, False)


def hook_class(raw: QoSClass | None, has_cpuset: bool) -> QoSClass | None:
    """The class by which runtime hooks choose pods: a pod without class whose ``resource-status`` annotation
    gives it a CPU set counts as LSR."""
    return QoSClass.LSR if raw is None and has_cpuset else raw


def is_best_effort(raw: QoSClass | None, kube: KubeQoS, *, is_free: bool = False, is_mid: bool = False) -> bool:
    """Returns whether the bounds of best-effort pods apply to this one: by its class, whatever tier kubelet has it in.

    The label decides. Pods of the free band count as BE; without a label so does whatever kubelet has in its BestEffort
    tier, but for the mid band, whose pods are there because they request no native resources.
    """
    if is_free or raw is not None:
        return is_free or raw is QoSClass.BE
    return kube is KubeQoS.BEST_EFFORT and not is_mid
