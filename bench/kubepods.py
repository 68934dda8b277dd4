"""Pods as an API server sends them: 7 KB of compact JSON each, fifty replicas of a template, one annotation its own.

The members are in the server's order. What differs between two replicas is what differs in a cluster: name, UID,
versions and times, node and addresses, the generated volume of the service account and IDs of containers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

REPLICAS = 50
NODES = 5_000
_TIME = "2026-01-01T00:00:00Z"
_OWN = re.compile(rb"@([a-z]+)@")


class Template:
    """The documents of one ReplicaSet's pods. ``null``: the member that each of them has as null."""

    def __init__(self, number: int, null: str = "") -> None:
        document = _document(number)
        if null:
            document["metadata"][null] = None
        self._parts = _OWN.split(json.dumps(document, separators=(",", ":")).encode())

    def pod(self, number: int, version: int) -> bytes:
        """Pod ``number`` of all, at ``version``."""
        own = {
            b"name": b"%05x" % (number % REPLICAS * 7919 & 0xFFFFF),
            b"uid": b"%012x" % number,
            b"version": b"%d" % version,
            b"node": b"node-%04d" % (number * 7 % NODES),
            b"address": b"10.%d.%d.%d" % (number >> 16 & 255, number >> 8 & 255, number & 255),
            b"id": b"%064x" % (number * 0x9E3779B97F4A7C15),
            b"own": b"%032x" % (number * 0xC2B2AE3D27D4EB4F),
        }
        parts = list(self._parts)
        for place in range(1, len(parts), 2):
            parts[place] = own[parts[place]]
        return b"".join(parts)


class Pods:
    """All pods, in the order in which a server lists them."""

    def __init__(self, count: int, null: str = "") -> None:
        self.count = count
        self._templates = [Template(number, null) for number in range(-(-count // REPLICAS))]

    def pod(self, number: int, version: int = 1_000_000) -> bytes:
        return self._templates[number // REPLICAS].pod(number, version)

    def page(self, numbers: Sequence[int], version: int, token: str) -> bytes:
        """A PodList of the pods ``numbers``; ``token``: where it goes on."""
        meta: dict[str, Any] = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":' + json.dumps(meta, separators=(",", ":")).encode()
        return head + b',"items":[' + b",".join([self.pod(number) for number in numbers]) + b"]}\n"

    def line(self, change: str, number: int, version: int = 1_000_000) -> bytes:
        """A line of a watch."""
        return b'{"type":"%s","object":%s}\n' % (change.encode(), self.typed(number, version))

    def typed(self, number: int, version: int) -> bytes:
        """As a watch has it: with its kind."""
        return b'{"kind":"Pod","apiVersion":"v1",' + self.pod(number, version)[1:]


def _document(template: int) -> dict[str, Any]:
    app, replica_set = f"service-{template}", f"service-{template}-{template * 2654435761 % 2**32:08x}"
    return {
        "metadata": {
            "name": f"{replica_set}-@name@",
            "generateName": f"{replica_set}-",
            "namespace": f"team-{template % 100}",
            "uid": "3f1c8a52-9d1e-4c55-b1a7-@uid@",
            "resourceVersion": "@version@",
            "generation": 1,
            "creationTimestamp": _TIME,
            "labels": {
                "app.kubernetes.io/name": app,
                "app.kubernetes.io/part-of": "shop",
                "app.kubernetes.io/version": "1.2.3",
                "koordinator.sh/qosClass": "LS",
                "pod-template-hash": replica_set.rpartition("-")[2],
            },
            "annotations": {
                "checksum/config": f"{template:064x}",
                "example.com/trace": "@own@",
                "kubectl.kubernetes.io/restartedAt": _TIME,
                "prometheus.io/port": "8080",
                "prometheus.io/scrape": "true",
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": replica_set,
                    "uid": f"8d4f7c1b-12ab-4f0e-9c3d-{template:012x}",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_managed("kube-controller-manager", ""), _managed("kubelet", "status")],
        },
        "spec": {
            "volumes": [
                {
                    "name": "kube-api-access-@name@",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                        ],
                        "defaultMode": 420,
                    },
                },
                {"name": "config", "configMap": {"name": f"{app}-config", "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {}},
            ],
            "containers": [_container("main", app), _container("sidecar", "mesh")],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": app,
            "serviceAccount": app,
            "nodeName": "@node@",
            "securityContext": {"runAsNonRoot": True, "fsGroup": 2000},
            "affinity": {
                "podAntiAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "podAffinityTerm": {
                                "labelSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
                                "topologyKey": "kubernetes.io/hostname",
                            },
                        }
                    ]
                }
            },
            "schedulerName": "koord-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{name}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for name in ("not-ready", "unreachable")
            ],
            "priorityClassName": "koord-prod",
            "priority": 9000,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": name, "status": "True", "lastProbeTime": None, "lastTransitionTime": _TIME}
                for name in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "192.168.0.1",
            "hostIPs": [{"ip": "192.168.0.1"}],
            "podIP": "@address@",
            "podIPs": [{"ip": "@address@"}],
            "startTime": _TIME,
            "containerStatuses": [_status(name) for name in ("main", "sidecar")],
            "qosClass": "Burstable",
        },
    }


def _managed(manager: str, subresource: str) -> dict[str, Any]:
    fields: dict[str, Any] = {f"f:field{number}": {".": {}, "f:name": {}} for number in range(12)}
    entry = {"manager": manager, "operation": "Update", "apiVersion": "v1", "time": _TIME, "fieldsType": "FieldsV1"}
    return entry | {"fieldsV1": {"f:spec": fields}} | ({"subresource": subresource} if subresource else {})


def _container(name: str, app: str) -> dict[str, Any]:
    return {
        "name": name,
        "image": f"registry.example.com/shop/{app}:1.2.3",
        "args": ["--listen=:8080", "--log-level=info"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": f"VARIABLE_{number}", "value": f"value of variable {number}"} for number in range(8)],
        "resources": {"limits": {"cpu": "1", "memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/app"},
            {
                "name": "kube-api-access-@name@",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        },
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }


def _status(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": _TIME}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": "registry.example.com/shop/app:1.2.3",
        "imageID": "registry.example.com/shop/app@sha256:" + "a" * 64,
        "containerID": "containerd://@id@",
        "started": True,
    }
