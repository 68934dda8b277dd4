"""Where Koord and what it meets are by default: its namespace in a cluster, and files on a node.

The programs' options have these defaults, and koordctl looks for files here, so that both mean the same.
"""

from __future__ import annotations

NAMESPACE = "koordinator-system"

RUN_DIRECTORY = "/run/koord"
UNDO_FILE_NAME = "undo.jsonl"
UNDO_RECORD = f"{RUN_DIRECTORY}/{UNDO_FILE_NAME}"
HOOK_SOCKET = f"{RUN_DIRECTORY}/qosd-hooks.sock"
INSPECT_SOCKET = f"{RUN_DIRECTORY}/qosd-inspect.sock"
BYPASS_FILE = f"{RUN_DIRECTORY}/bypass"
"""While it exists, the runtime proxy edits nothing."""
PROXY_STATUS_SOCKET = f"{RUN_DIRECTORY}/runtime-proxy-metrics.sock"
PROXY_DIRECTORY = "/run/koord-runtimeproxy"
PROXY_SOCKET = f"{PROXY_DIRECTORY}/runtimeproxy.sock"
"""kubelet connects to it instead of to the runtime's."""

STATE_DIRECTORY = "/var/lib/koord"
LAST_POLICY_FILE_NAME = "policy.yaml"
LAST_NODE_SLO_FILE_NAME = "nodeslo.yaml"
"""The last good rules file and NodeSLO, below the state directory."""

CONFIGURATION_DIRECTORY = "/etc/koord"
RULES_FILE = f"{CONFIGURATION_DIRECTORY}/qosd-rules.yaml"
HOOK_SERVER_DIRECTORY = "/etc/runtime/hookserver.d"
HOOK_SERVER_FILE_NAME = "koord-qosd.json"
HOOK_SERVER_FILE = f"{HOOK_SERVER_DIRECTORY}/{HOOK_SERVER_FILE_NAME}"
"""koord-qosd's entry among the hook servers that a runtime proxy asks."""

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
CRIO_SOCKET = "/run/crio/crio.sock"
NRI_SOCKET = "/var/run/nri/nri.sock"
CGROUP_ROOT = "/sys/fs/cgroup"
RESCTRL_ROOT = "/sys/fs/resctrl"
