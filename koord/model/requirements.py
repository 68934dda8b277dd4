"""What each QoS class asks of a pod's requests and limits, as sentences, and the Kubernetes QoS they amount to.

LSE and LSR need request = limit in whole CPUs; SYSTEM is limited, so each of its containers needs a CPU and a memory
limit; LS and BE ask nothing. A complaint never changes how a pod is treated; it is for admission and for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from koord.model.qos import KubeQoS, QoSClass
from koord.model.quantity import Bytes, MilliCPU


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """Native requests and limits of one container; None or 0 = not set."""

    name: str = ""
    cpu_request: MilliCPU | None = None
    cpu_limit: MilliCPU | None = None
    memory_request: Bytes | None = None
    memory_limit: Bytes | None = None

    def guaranteed(self) -> bool:
        """Whether CPU and memory are both limited and requested in full; a missing request equals the limit."""
        return _in_full(self.cpu_request, self.cpu_limit) and _in_full(self.memory_request, self.memory_limit)

    def empty(self) -> bool:
        return not (self.cpu_request or self.cpu_limit or self.memory_request or self.memory_limit)


def kube_qos(containers: Sequence[ContainerAmounts]) -> KubeQoS:
    """The Kubernetes QoS class of a pod with these containers (init containers included).

    Of resources only native cpu and memory count, so a pod that asks for batch resources alone is BestEffort.
    """
    if all(container.empty() for container in containers):
        return KubeQoS.BEST_EFFORT
    if all(container.guaranteed() for container in containers):
        return KubeQoS.GUARANTEED
    return KubeQoS.BURSTABLE


def complaints(qos: QoSClass, containers: Sequence[ContainerAmounts]) -> tuple[str, ...]:
    """Returns what a pod of class ``qos`` lacks, one sentence per container and rule."""
    if qos in (QoSClass.LSE, QoSClass.LSR):
        return tuple(sentence for container in containers for sentence in _bound_cpus(qos, container))
    if qos is QoSClass.SYSTEM:
        return tuple(sentence for container in containers for sentence in _limited(container))
    return ()


def _bound_cpus(qos: QoSClass, container: ContainerAmounts) -> list[str]:
    request, limit = container.cpu_request or container.cpu_limit or 0, container.cpu_limit or 0
    found = []
    if request != limit:
        found.append(f"container {container.name!r}: {qos} needs cpu request = limit, not {request}m and {limit}m")
    if request <= 0 or request % 1000:
        found.append(f"container {container.name!r}: {qos} needs whole CPUs, not {request}m")
    return found


def _limited(container: ContainerAmounts) -> list[str]:
    missing = [name for name, limit in (("cpu", container.cpu_limit), ("memory", container.memory_limit)) if not limit]
    return [f"container {container.name!r}: SYSTEM needs a {name} limit" for name in missing]


def _in_full(request: int | None, limit: int | None) -> bool:
    return bool(limit) and (request or limit) == limit
