"""A document of each kind that a scheduler reads, with every field that its struct has, and some that it has not.

Written by the API reference of Kubernetes and the CRDs of Koordinator, with values that are nobody's default.
"""

from __future__ import annotations

from typing import Any

TIME = "2026-01-01T00:00:00Z"
MAPS = (
    *(("labels",), ("annotations",), ("matchLabels",), ("nodeSelector",), ("overhead",), ("requests",), ("limits",)),
    *(("capacity",), ("allocatable",), ("parameters",), ("disruptedPods",), ("minResources",), ("allocated",)),
    *(("resources",), ("allocatedResources",), ("state",)),
)
"""Objects of which every member counts. (``resources`` is one in a Device; elsewhere what it has is skipped, too.)"""

EXCLUSIVE = frozenset(
    {
        "$.spec.volumes",
        "$.spec.resourceClaims.resourceClaimTemplateName",
        "$.spec.template.spec.resourceClaims",
    }
)
"""Fields that cannot be set beside others, or are read of another document."""


def metadata(name: str, namespace: str = "shop") -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"} | (
        {"namespace": namespace} if namespace else {}
    )


SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["front"]}]}
NODE_TERM = {
    "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}],
    "matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-1"]}],
}
POD_TERM = {
    "labelSelector": SELECTOR,
    "namespaces": ["shop"],
    "namespaceSelector": SELECTOR,
    "topologyKey": "kubernetes.io/hostname",
    "matchLabelKeys": ["pod-template-hash"],
    "mismatchLabelKeys": ["tenant"],
}
POD_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": POD_TERM}],
}
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 10, "preference": NODE_TERM}],
    },
    "podAffinity": POD_AFFINITY,
    "podAntiAffinity": POD_AFFINITY,
}
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}}
CONTAINER = {
    "name": "main",
    "image": "registry.example.com/app:1",
    "restartPolicy": "Always",
    "resources": RESOURCES | {"claims": [{"name": "gpu", "request": "one"}]},
    "ports": [{"name": "http", "containerPort": 8080, "hostPort": 80, "hostIP": "10.0.0.1", "protocol": "UDP"}],
    "env": [{"name": "A", "value": "b"}],
    "imagePullPolicy": "IfNotPresent",
}
TAINT = {"key": "dedicated", "value": "batch", "effect": "NoSchedule", "timeAdded": TIME}
POD_SPEC: dict[str, Any] = {
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "cache", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    ],
    "nodeName": "node-1",
    "nodeSelector": {"disk": "ssd"},
    "affinity": AFFINITY,
    "tolerations": [
        {"key": "dedicated", "operator": "Exists", "value": "x", "effect": "NoExecute", "tolerationSeconds": 300}
    ],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": SELECTOR,
            "minDomains": 2,
            "nodeAffinityPolicy": "Ignore",
            "nodeTaintsPolicy": "Honor",
            "matchLabelKeys": ["pod-template-hash"],
        }
    ],
    "schedulingGates": [{"name": "example.com/quota"}],
    "workloadRef": {"name": "training", "podGroup": "workers", "podGroupReplicaKey": "0"},
    "schedulingGroup": {"podGroupName": "workers"},
    "preemptionPolicy": "Never",
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu-1"}],
    "terminationGracePeriodSeconds": 30,
    "overhead": {"cpu": "250m"},
    "resources": RESOURCES,
    "priority": 9000,
    "priorityClassName": "koord-prod",
    "schedulerName": "koord-scheduler",
    "hostNetwork": True,
    "runtimeClassName": "kata",
    "restartPolicy": "Always",
    "serviceAccountName": "web",
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": metadata("web-1"),
    "spec": POD_SPEC,
    "status": {
        "phase": "Pending",
        "qosClass": "Burstable",
        "startTime": TIME,
        "podIPs": [{"ip": "10.1.0.1"}],
        "nominatedNodeName": "node-2",
        "reason": "Evicted",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available",
                "lastProbeTime": None,
                "lastHeartbeatTime": TIME,
                "lastTransitionTime": TIME,
            }
        ],
        "containerStatuses": [
            {"name": "main", "allocatedResources": {"cpu": "1"}, "resources": RESOURCES, "state": {"running": {}}}
        ],
        "initContainerStatuses": [{"name": "main", "restartCount": 1}],
    },
}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
    "lastHeartbeatTime": TIME,
    "lastTransitionTime": TIME,
}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": metadata("node-1", ""),
    "spec": {"unschedulable": True, "taints": [TAINT], "podCIDR": "10.1.0.0/24"},
    "status": {
        "capacity": {"cpu": "8"},
        "allocatable": {"cpu": "7"},
        "conditions": [CONDITION],
        "images": [{"names": ["registry.example.com/app:1"], "sizeBytes": 12345}],
        "nodeInfo": {"kubeletVersion": "v1.34.0"},
    },
}
REFERENCE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "namespace": "shop",
    "name": "web-1",
    "uid": "u",
    "resourceVersion": "7",
    "fieldPath": "spec",
}
PERSISTENT_VOLUME_CLAIM: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": metadata("data"),
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "8Gi"}, "limits": {"storage": "9Gi"}},
        "selector": SELECTOR,
        "storageClassName": "fast",
        "volumeMode": "Block",
        "volumeName": "pv-1",
        "volumeAttributesClassName": "gold",
        "dataSource": {"kind": "VolumeSnapshot"},
    },
    "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "8Gi"}},
}
PERSISTENT_VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": metadata("pv-1", ""),
    "spec": {
        "capacity": {"storage": "8Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": REFERENCE,
        "gcePersistentDisk": {"pdName": "disk-1", "fsType": "ext4", "partition": 1, "readOnly": True},
        "awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ext4", "partition": 1, "readOnly": True},
        "azureDisk": {"diskName": "disk-1", "diskURI": "/subscriptions/s/disk-1", "kind": "Managed"},
        "cinder": {"volumeID": "cinder-1", "fsType": "ext4"},
        "portworxVolume": {"volumeID": "portworx-1", "fsType": "ext4"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [NODE_TERM]}},
        "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "fast",
        "volumeMode": "Block",
        "volumeAttributesClassName": "gold",
        "csi": {"driver": "csi.example.com", "volumeHandle": "v-1", "fsType": "ext4"},
        "local": {"path": "/mnt/disk"},
    },
    "status": {"phase": "Bound", "lastPhaseTransitionTime": TIME},
}
STORAGE_CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": metadata("fast", ""),
    "provisioner": "csi.example.com",
    "parameters": {"type": "ssd"},
    "reclaimPolicy": "Retain",
    "allowVolumeExpansion": True,
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [
        {"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["a"]}]},
    ],
    "mountOptions": ["noatime"],
}
VOLUME_ATTACHMENT: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "VolumeAttachment",
    "metadata": metadata("csi-1", ""),
    "spec": {"attacher": "csi.example.com", "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}},
    "status": {"attached": True},
}

CSI_NODE: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSINode",
    "metadata": metadata("node-1", ""),
    "spec": {
        "drivers": [
            {
                "name": "csi.example.com",
                "nodeID": "i-1",
                "topologyKeys": ["topology.csi.example.com/zone"],
                "allocatable": {"count": 25},
            }
        ]
    },
}
CSI_DRIVER: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": metadata("csi.example.com", ""),
    "spec": {"storageCapacity": True, "attachRequired": True},
}
CSI_STORAGE_CAPACITY: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIStorageCapacity",
    "metadata": metadata("csisc-1"),
    "storageClassName": "fast",
    "nodeTopology": SELECTOR,
    "capacity": "100Gi",
    "maximumVolumeSize": "10Gi",
}
POD_DISRUPTION_BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": metadata("web"),
    "spec": {
        "selector": SELECTOR,
        "minAvailable": "50%",
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    },
    "status": {
        "disruptionsAllowed": 1,
        "currentHealthy": 3,
        "desiredHealthy": 2,
        "expectedPods": 4,
        "observedGeneration": 5,
        "disruptedPods": {"web-1": TIME},
        "conditions": [CONDITION | {"observedGeneration": 5}],
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": metadata("web"),
    "spec": {"selector": {"app": "web"}},
}
REPLICATION_CONTROLLER: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ReplicationController",
    "metadata": metadata("web"),
    "spec": {"selector": {"app": "web"}},
}
REPLICA_SET: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": metadata("web"),
    "spec": {"selector": SELECTOR},
}
STATEFUL_SET: dict[str, Any] = {**REPLICA_SET, "kind": "StatefulSet"}
PRIORITY_CLASS: dict[str, Any] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": metadata("koord-prod", ""),
    "value": 9000,
    "globalDefault": True,
    "description": "services",
    "preemptionPolicy": "Never",
}
POD_GROUP: dict[str, Any] = {
    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
    "kind": "PodGroup",
    "metadata": metadata("gang"),
    "spec": {"minMember": 3, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60},
    "status": {
        "phase": "Scheduling",
        "occupiedBy": "shop/job",
        "scheduled": 1,
        "running": 2,
        "succeeded": 3,
        "failed": 4,
        "scheduleStartTime": TIME,
    },
}
RESERVATION: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Reservation",
    "metadata": metadata("room", ""),
    "spec": {
        "template": {
            "metadata": {"creationTimestamp": None, "labels": {"app": "web"}},
            "spec": {name: value for name, value in POD_SPEC.items() if name != "resourceClaims"},
        },
        "owners": [
            {
                "object": REFERENCE,
                "controller": {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": "web",
                    "uid": "u",
                    "controller": True,
                    "namespace": "shop",
                },
                "labelSelector": SELECTOR,
            }
        ],
        "ttl": "1h0m0s",
        "expires": TIME,
        "preAllocation": True,
        "allocateOnce": False,
        "allocatePolicy": "Restricted",
        "unschedulable": True,
        "taints": [TAINT],
    },
    "status": {
        "phase": "Available",
        "conditions": [CONDITION | {"lastProbeTime": TIME}],
        "currentOwners": [REFERENCE],
        "nodeName": "node-1",
        "allocatable": {"cpu": "4"},
        "allocated": {"cpu": "1"},
    },
}
DEVICE: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "Device",
    "metadata": metadata("node-1", ""),
    "spec": {
        "devices": [
            {
                "type": "gpu",
                "labels": {"model": "a"},
                "id": "GPU-1",
                "minor": 1,
                "moduleID": 2,
                "health": True,
                "resources": {"koordinator.sh/gpu-core": "100"},
                "topology": {"socketID": 1, "nodeID": 2, "pcieID": "3", "busID": "0000:3b:00.0"},
                "vfGroups": [{"labels": {"type": "general"}, "vfs": [{"minor": 1, "busID": "0000:3b:00.2"}]}],
                "conditions": [{**CONDITION, "observedGeneration": 3}],
            }
        ]
    },
    "status": {
        "allocations": [
            {"type": "gpu", "entries": [{"name": "web-1", "namespace": "shop", "uuid": "GPU-1", "minors": [1]}]}
        ]
    },
}
