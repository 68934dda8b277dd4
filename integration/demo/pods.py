"""The pods of the demo, as a user of the quick starts would write them, and the rules of its node."""

from __future__ import annotations

import json

from integration.harness.pods import Container, Pod

QOS = "koordinator.sh/qosClass"
RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
EXTENDED_RESOURCES = "node.koordinator.sh/extended-resource-spec"
MIB = 1 << 20
SUPPRESSION = """\
spec:
  resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota, cpuSuppressThresholdPercent: 65}
"""
SERVING = ("/bin/sh", "-c", "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 0.05; done")
SPINNING = ("/bin/sh", "-c", "while :; do :; done & while :; do :; done")


def rules(last_cpu: int) -> str:
    """An LSR pod holds CPU 0; LS pods share the rest, BE pods may run everywhere."""
    rest = f"1-{last_cpu}" if last_cpu > 1 else str(last_cpu)
    return (
        "node:\n"
        "  sharedPools:\n"
        f'    ls: [{{socket: 0, node: 0, cpuset: "{rest}"}}]\n'
        f'    be: [{{socket: 0, node: 0, cpuset: "0-{last_cpu}"}}]\n'
    )


def latency_sensitive_reserved(root: str) -> Pod:
    """A whole CPU of its own; the scheduler has written which."""
    return Pod(
        "nginx-lsr",
        (Container("nginx", cpu_limit_milli=1000, memory_limit_bytes=128 * MIB),),
        labels={QOS: "LSR", "koordinator.sh/priority-class": "koord-prod"},
        annotations={RESOURCE_STATUS: json.dumps({"cpuset": "0"})},
        cgroup_root=root,
    )


def latency_sensitive(root: str) -> Pod:
    return Pod(
        "nginx-ls",
        (Container("nginx", cpu_request_milli=500, cpu_limit_milli=1000, memory_limit_bytes=128 * MIB),),
        labels={QOS: "LS", "koordinator.sh/priority-class": "koord-prod"},
        cgroup_root=root,
    )


def best_effort(root: str, name: str = "batch-job") -> Pod:
    """Only batch resources: to kubelet a BestEffort pod without any limit."""
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
    spec = {"containers": {"worker": {"requests": amounts, "limits": amounts}}}
    return Pod(
        name,
        (Container("worker"),),
        labels={QOS: "BE", "koordinator.sh/priority-class": "koord-batch"},
        annotations={EXTENDED_RESOURCES: json.dumps(spec)},
        cgroup_root=root,
    )


def busy_service(root: str) -> Pod:
    """Latency-sensitive, with something to do most of the time."""
    return Pod(
        "web",
        (Container("web", cpu_request_milli=500, command=SERVING),),
        labels={QOS: "LS", "koordinator.sh/priority-class": "koord-prod"},
        cgroup_root=root,
    )


def hog(root: str) -> Pod:
    """Best-effort, without any limit: it takes what CPU time it can get."""
    return Pod(
        "hog",
        (Container("worker", command=SPINNING),),
        labels={QOS: "BE", "koordinator.sh/priority-class": "koord-batch"},
        cgroup_root=root,
    )
