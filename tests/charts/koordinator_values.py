"""Which values Koordinator's charts 1.6.0 and 1.8.0 have, with defaults of their kind: what clusters pass on."""

from __future__ import annotations

from typing import Any

_RESOURCES = {"limits": {"cpu": "1000m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "256Mi"}}
_AGENT_RESOURCES = {"limits": {"cpu": "200m", "memory": "256Mi"}, "requests": {"cpu": "0", "memory": "0"}}
_PLACE: dict[str, Any] = {"hostNetwork": False, "nodeAffinity": {}, "nodeSelector": {}, "tolerations": []}
_LOG = {"level": "4"}


def _image(name: str) -> dict[str, str]:
    return {"repository": f"koordinator-sh/{name}", "tag": "v1.8.0"}


def _leader(name: str, **more: Any) -> dict[str, Any]:
    return {"log": _LOG, "replicas": 2, "image": _image(name), "resources": _RESOURCES, **_PLACE, **more}


VALUES: dict[str, Any] = {
    "crds": {
        "managed": True,
        **dict.fromkeys(
            (
                *("clustercolocationprofiles", "devices", "elasticquotaprofiles", "elasticquotas", "nodemetrics"),
                *("nodeslos", "noderesourcetopologies", "recommendations", "reservations", "podgroups"),
                *("podmigrationjobs", "clusternetworktopologies", "scheduleexplanations"),
            ),
            True,
        ),
    },
    "installation": {"namespace": "koordinator-system", "roleListGroups": ["*"]},
    "featureGates": "",
    "imageRepositoryHost": "registry.cn-beijing.aliyuncs.com",
    "imagePullSecrets": {},
    "koordlet": {
        "image": _image("koordlet"),
        "resources": _AGENT_RESOURCES,
        "features": "",
        "log": _LOG,
        "hostDirs": {
            "kubeletConfigDir": "/etc/kubernetes/",
            "kubeletLibDir": "/var/lib/kubelet/",
            "koordProxyRegisterDir": "/etc/runtime/hookserver.d/",
            "koordletSockDir": "/var/run/koordlet",
            "predictionCheckpointDir": "/var/run/koordlet/prediction-checkpoints",
            "koordletTSDBDir": "",
            "podResourcesProxyPath": "/var/run/koordlet/pod-resources/",
        },
        "runtimeClassName": "",
        "nodeAffinity": {},
        "metrics": {"port": 9316},
        "enableServiceMonitor": False,
    },
    "manager": _leader(
        "koord-manager",
        webhook={"port": 9876},
        metrics={"addr": "", "port": 8080},
        healthProbe={"port": 8000},
        resyncPeriod="0",
        controllers="*",
    ),
    "webhookConfiguration": {
        "failurePolicy": dict.fromkeys(("pods", "elasticquotas", "nodeStatus", "nodes", "reservations"), "Ignore"),
        "timeoutSeconds": 30,
    },
    "serviceAccount": {"annotations": {}},
    "scheduler": _leader("koord-scheduler", port=10251, featureGates="", enableJobPreemption=True),
    "descheduler": _leader("koord-descheduler", port=10251, featureGates=""),
    "deviceDaemon": {"image": _image("koord-device-daemon"), "resources": _AGENT_RESOURCES, "log": _LOG},
    "koordYarnCopilotAgent": {"enabled": True, "image": _image("yarn-copilot"), "resources": _RESOURCES},
}
