"""One object of each of our kinds with a value in every kind of place: nested maps, lists, quantities of both JSON
types, free-form parts. ``status`` goes through the status subresource where the kind has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

USAGE = {"resources": {"cpu": "1500m", "memory": 2147483648}}
SELECTOR = {"matchLabels": {"koordinator.sh/enable-colocation": "true"}}

EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "PodGroup": {
        "spec": {"minMember": 3, "minResources": {"cpu": "12", "memory": "24Gi"}, "scheduleTimeoutSeconds": 600},
        "status": {
            "phase": "Running",
            "occupiedBy": "default/train",
            "scheduled": 3,
            "running": 2,
            "succeeded": 1,
            "failed": 0,
            "scheduleStartTime": "2026-01-02T03:04:05Z",
        },
    },
    "ElasticQuota": {
        "spec": {"min": {"cpu": "10", "memory": 2147483648}, "max": {"cpu": "40500m", "memory": "96Gi"}},
        "status": {"used": {"cpu": "1500m", "memory": "3Gi"}},
    },
    "ElasticQuotaProfile": {
        "spec": {
            "quotaName": "pool-root",
            "quotaLabels": {"team": "batch"},
            "resourceRatio": "0.9",
            "nodeSelector": {
                "matchLabels": {"pool": "batch"},
                "matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}],
            },
        },
    },
    "NodeMetric": {
        "spec": {
            "metricCollectPolicy": {
                "aggregateDurationSeconds": 300,
                "reportIntervalSeconds": 60,
                "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s"]},
                "nodeMemoryCollectPolicy": "usageWithoutPageCache",
            }
        },
        "status": {
            "updateTime": "2026-01-02T03:04:05Z",
            "nodeMetric": {
                "nodeUsage": USAGE,
                "systemUsage": USAGE,
                "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"avg": USAGE, "p95": USAGE}}],
                "aggregatedSystemUsages": [{"duration": "5m0s", "usage": {"p99": USAGE}}],
                "numaUsages": [{"numaNodeID": 0, "nodeUsage": USAGE, "systemUsage": USAGE}],
            },
            "podsMetric": [
                {
                    "name": "web-0",
                    "namespace": "shop",
                    "podUsage": USAGE,
                    "priority": "koord-prod",
                    "qos": "LS",
                    "extensions": {"anything": {"nested": [1, "two"]}},
                }
            ],
            "hostApplicationMetric": [{"name": "nginx", "usage": USAGE, "priority": "koord-prod", "qos": "LS"}],
            "prodReclaimableMetric": {"resource": USAGE},
            "prodPeakMetric": {"resource": USAGE},
        },
    },
    "NodeSLO": {
        "spec": {
            "resourceUsedThresholdWithBE": {
                "enable": True,
                "cpuSuppressThresholdPercent": 65,
                "cpuSuppressPolicy": "cpuset",
                "memoryEvictThresholdPercent": 70,
                "cpuEvictPolicy": "evictByRealLimit",
                "evictEnabledPriorityThreshold": 5999,
            },
            "resourceQOSStrategy": {
                "policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"},
                "beClass": {
                    "cpuQOS": {"enable": True, "groupIdentity": -1, "schedIdle": 1, "coreExpeller": False},
                    "memoryQOS": {"enable": True, "wmarkRatio": 95, "wmarkMinAdj": 50, "pageCacheLimitSize": 1048576},
                    "blkioQOS": {
                        "enable": True,
                        "blocks": [
                            {"name": "vda", "type": "device", "ioCfg": {"readIOPS": 100, "ioWeightPercent": 60}}
                        ],
                    },
                    "resctrlQOS": {"enable": True, "catRangeEndPercent": 30, "mbaPercent": 50},
                    "networkQOS": {"enable": True, "ingressLimit": 30, "egressLimit": "50M"},
                },
            },
            "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPeriodSeconds": -1},
            "systemStrategy": {
                "minFreeKbytesFactor": 100,
                "watermarkScaleFactor": 150,
                "schedFeatures": {"ID_ABSOLUTE_EXPEL": True},
                "totalNetworkBandwidth": "10G",
            },
            "hostApplications": [
                {
                    "name": "nginx",
                    "priority": "koord-prod",
                    "qos": "LS",
                    "cgroupPath": {
                        "base": "CgroupRoot",
                        "parentDir": "host-latency-sensitive",
                        "relativePath": "nginx",
                    },
                }
            ],
            "extensions": {"anything": {"nested": [1, "two"]}},
        },
    },
    "ClusterColocationProfile": {
        "spec": {
            "namespaceSelector": SELECTOR,
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["batch"]}]},
            "probability": "70%",
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
            "koordinatorPriority": 1000,
            "schedulerName": "koord-scheduler",
            "labels": {"koordinator.sh/mutated": "true"},
            "annotations": {"koordinator.sh/intercepted": "true"},
            "labelKeysMapping": {"old-key": "new-key"},
            "annotationKeysMapping": {"old-key": "new-key"},
            "labelSuffixes": {"app": "-batch"},
            "patch": {"spec": {"terminationGracePeriodSeconds": 30}},
        },
    },
    "NodeResourceTopology": {
        "topologyPolicies": ["None"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "costs": [{"name": "node-0", "value": 10}],
                "resources": [{"name": "cpu", "capacity": "16", "allocatable": "16", "available": "16"}],
            }
        ],
    },
}
