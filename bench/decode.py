"""What reading a list of pods costs: msgspec straight into structs, against `schema.read`. ``python -m bench.decode``.

Both ways make the same structs of the same list, in turns, as a machine's speed varies by the minute. Beside them
stands what koord-qosd makes of such a list every half minute. Memory is what stays allocated for the result.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bench import stats
from koord.model import core, schema
from koord.model.core import Pod
from qosd.pods.kubelet import read_pods

SIZES = (1_000, 10_000)
_TIME = "2026-01-01T00:00:00Z"
_TOKEN = {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}


def natively(body: bytes) -> Sequence[Any]:
    return core.read_list(Pod, body).items


def by_schema(body: bytes) -> Sequence[Any]:
    return [schema.read(Pod, item) for item in msgspec.json.decode(body)["items"]]


def as_qosd(body: bytes) -> Sequence[Any]:
    return read_pods(body).items


WAYS: dict[str, Callable[[bytes], Sequence[Any]]] = {
    "core.read_list": natively,
    "schema.read": by_schema,
    "read_pods (koord-qosd)": as_qosd,
}


def pod_list(count: int) -> bytes:
    """As an API server sends it: 3.5 KiB a pod, of which Koord reads a quarter."""
    return json.dumps({"kind": "PodList", "items": [_pod(number) for number in range(count)]}).encode()


def turn(way: Callable[[bytes], Sequence[Any]], body: bytes) -> float:
    """Milliseconds of CPU time."""
    gc.collect()
    began_s = time.process_time()
    way(body)
    return (time.process_time() - began_s) * 1e3


def held_bytes(way: Callable[[bytes], Sequence[Any]], body: bytes) -> int:
    gc.collect()
    tracemalloc.start()
    pods = way(body)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del pods
    return held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.decode", description="Measure the reading of pods.")
    parser.add_argument("--rounds", type=int, default=10, help="turns of each way (default 10)")
    rounds = parser.parse_args().rounds
    ratios = []
    print(f"{'pods':>7}  {'way':<24}{'ms':>10}{'µs a pod':>10}{'KiB a pod':>11}")
    for size in SIZES:
        body = pod_list(size)
        turns: dict[str, list[float]] = {name: [] for name in WAYS}
        for number in range(rounds):
            for name in WAYS if number % 2 == 0 else reversed(WAYS):
                turns[name].append(turn(WAYS[name], body))
        for name, way in WAYS.items():
            ms = statistics.median(turns[name])
            print(
                f"{size:>7,}  {name:<24}{ms:>10.1f}{ms * 1e3 / size:>10.1f}{held_bytes(way, body) / size / 1024:>11.2f}"
            )
        ratio = stats.paired(stats.ratio, turns["core.read_list"], turns["schema.read"])
        ratios.append(f"{size:,} pods {ratio.value:.1f} [{ratio.low:.1f}, {ratio.high:.1f}]")
    print(f"bench-decode: schema.read takes so many times as long as core.read_list: {', '.join(ratios)}")
    return 0


def _pod(number: int) -> dict[str, Any]:
    names = ("main", "proxy")
    return {
        "metadata": {
            "name": f"web-{number}",
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "resourceVersion": str(number),
            "creationTimestamp": _TIME,
            "labels": {"app": "web", "koordinator.sh/qosClass": "LS"},
            "annotations": {"kubernetes.io/config.seen": _TIME, "kubernetes.io/config.source": "api"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}],
            "managedFields": [{"manager": "m", "fieldsV1": {f"f:{each}": {".": {}} for each in range(20)}}],
        },
        "spec": {
            "volumes": [
                {"name": "token", "projected": {"sources": [_TOKEN], "defaultMode": 420}},
                {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            ],
            "containers": [_container(name) for name in names],
            "nodeName": "node",
            "schedulerName": "koord-scheduler",
            "restartPolicy": "Always",
            "priority": 9000,
            "tolerations": [{"key": f"node.kubernetes.io/{each}", "operator": "Exists"} for each in ("a", "b")],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": each, "status": "True", "lastProbeTime": None} for each in ("Ready", "Initialized")
            ],
            "podIPs": [{"ip": "10.0.0.1"}],
            "startTime": _TIME,
            "qosClass": "Burstable",
            "containerStatuses": [_status(name) for name in names],
        },
    }


def _container(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": "registry.example.com/team/app:v1.2.3",
        "args": ["--listen=:8080", "--log-level=info"],
        "env": [{"name": f"VARIABLE_{each}", "value": "x" * 20} for each in range(8)],
        "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}},
        "volumeMounts": [{"name": "token", "readOnly": True, "mountPath": "/var/run/secrets"}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
    }


def _status(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": _TIME}},
        "restartCount": 0,
        "imageID": "registry.example.com/team/app@sha256:" + "a" * 64,
        "containerID": "containerd://" + "b" * 64,
    }


if __name__ == "__main__":
    sys.exit(main())
