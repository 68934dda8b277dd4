"""Pods of every class, in sizes at random, as kubelet and Koord's scheduler describe them."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Mapping, Sequence

from integration.harness.pods import Container, Pod

QOS = "koordinator.sh/qosClass"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED_RESOURCES = "node.koordinator.sh/extended-resource-spec"
MIB = 1 << 20
SLEEP = ("sleep", "86400")
# BE pods idle, so that cpu.idle and the shares that it locks are written, too.
RULES = """\
spec:
  resourceQOSStrategy:
    beClass: {cpuQOS: {enable: true, schedIdle: 1}}
"""
Maker = Callable[[random.Random, str, str], Pod]


def latency_sensitive(chance: random.Random, name: str, root: str) -> Pod:
    """LS, Burstable, with a quota that normalization divides; one container or two."""
    limit = 100 * chance.randint(2, 8)
    names = ("main", "side")[: chance.randint(1, 2)]
    containers = tuple(
        Container(each, limit // 2, limit, 16 * MIB, chance.choice((64, 128)) * MIB, command=SLEEP) for each in names
    )
    return _pod(chance, name, root, containers, {QOS: "LS"})


def bound(chance: random.Random, name: str, root: str, qos: str = "LSR") -> Pod:
    """LSR: Guaranteed, with a whole CPU that the scheduler chose."""
    container = Container("main", cpu_limit_milli=1000, memory_limit_bytes=64 * MIB, command=SLEEP)
    status = {RESOURCE_STATUS: json.dumps({"cpuset": str(chance.randint(0, 1))})}
    return _pod(chance, name, root, (container,), {QOS: qos}, status)


def exclusive(chance: random.Random, name: str, root: str) -> Pod:
    """LSE: no other pod runs on its CPU."""
    return bound(chance, name, root, "LSE")


def best_effort(chance: random.Random, name: str, root: str) -> Pod:
    """BE: batch resources only, so to kubelet BestEffort; some without a limit."""
    cpu, memory = f"{100 * chance.randint(1, 9)}", f"{32 * chance.randint(1, 4)}Mi"
    amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    of_main = {"requests": amounts, "limits": amounts if chance.random() < 0.8 else {}}
    spec = {EXTENDED_RESOURCES: json.dumps({"containers": {"main": of_main}})}
    labels = {QOS: "BE", "koordinator.sh/priority-class": "koord-batch"}
    return _pod(chance, name, root, (Container("main", command=SLEEP),), labels, spec)


def unlabelled(chance: random.Random, name: str, root: str) -> Pod:
    """No class of Koord's."""
    return _pod(chance, name, root, (Container("main", cpu_request_milli=100, cpu_limit_milli=500, command=SLEEP),))


EVERY: Sequence[Maker] = (latency_sensitive, bound, exclusive, best_effort, unlabelled)
SHARES = (4, 1, 1, 4, 1)


def any_pod(chance: random.Random, name: str, root: str) -> Pod:
    """A pod of any kind; LS and BE are the most."""
    return chance.choices(EVERY, SHARES)[0](chance, name, root)


def _pod(
    chance: random.Random,
    name: str,
    root: str,
    containers: tuple[Container, ...],
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    uid = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    return Pod(name, containers, uid=uid, labels=labels or {}, annotations=annotations or {}, cgroup_root=root)
