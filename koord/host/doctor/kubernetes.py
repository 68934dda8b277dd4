"""What kubelet and the container runtime are set to, as far as Koord builds on it or may quarrel with it."""

from __future__ import annotations

from koord.host.doctor.facts import Facts
from koord.host.doctor.finding import Finding, Status

_OK, _INFO, _WARN, _FAIL = Status.OK, Status.INFO, Status.WARN, Status.FAIL


def kubelet(facts: Facts) -> Finding:
    found = facts.kubelet
    if not found.running:
        text = "no kubelet is running here: only pods that the runtime knows are seen"
        return Finding("kubelet", _WARN, text, "start kubelet")
    if found.config_problem:
        return Finding("kubelet", _WARN, found.config_problem, "let root read it, or correct it")
    return Finding("kubelet", _OK, f"running, configured by {found.config_file or 'flags alone'}")


def cgroup_driver(facts: Facts) -> Finding:
    """Tree, kubelet and runtime must mean the same driver, or pods are in other cgroups than Koord expects."""
    cgroup = facts.cgroup
    if cgroup.kube_root and cgroup.layout_problems:
        remedy = "set the same driver in kubelet (cgroupDriver) and the runtime (SystemdCgroup), restart both"
        return Finding("cgroup-driver", _FAIL, "; ".join(cgroup.layout_problems), remedy)
    if not cgroup.kube_root:
        return Finding("cgroup-driver", _INFO, "neither kubelet, nor the runtime, nor the tree tells it")
    return Finding("cgroup-driver", _OK, cgroup.driver)


def cpu_manager(facts: Facts) -> Finding:
    policy = facts.kubelet.cpu_manager_policy or "none"
    rules = facts.koord.rules_cpu_manager_policy or "none"
    if facts.kubelet.running and policy != rules:
        return Finding(
            "cpu-manager",
            _FAIL,
            f"kubelet's cpuManagerPolicy is {policy}, and the rules say {rules}",
            f"set node.cpuManagerPolicy: {policy} in {facts.koord.rules_file or 'the rules file'}",
        )
    if policy == "static":
        return Finding("cpu-manager", _INFO, "static: Guaranteed pods without a QoS label keep kubelet's CPUs")
    return Finding("cpu-manager", _OK, f"policy {policy}")


def in_place_resize(facts: Facts) -> Finding:
    gate = facts.kubelet.feature_gates.get("InPlacePodVerticalScaling")
    if gate is False:
        return Finding("in-place-resize", _OK, "feature gate InPlacePodVerticalScaling is off")
    state = "is on" if gate else "is not set (on by default from Kubernetes 1.33)"
    return Finding(
        "in-place-resize",
        _INFO,
        f"feature gate InPlacePodVerticalScaling {state}: a resize rewrites CPU and memory files, which Koord sees as "
        "a new base",
    )


def kubelet_memory_qos(facts: Facts) -> Finding:
    if facts.kubelet.feature_gates.get("MemoryQoS"):
        remedy = "turn off kubelet's gate MemoryQoS, or Koord's memoryQOS"
        return Finding(
            "kubelet-memory-qos", _WARN, "kubelet's gate MemoryQoS writes memory.min and memory.high", remedy
        )
    return Finding("kubelet-memory-qos", _OK, "kubelet leaves memory.min and memory.high alone")


def runtime(facts: Facts) -> Finding:
    found = facts.runtime
    if not found.socket_exists:
        remedy = "start it, or name its socket: koord-qosd --runtime-endpoint"
        return Finding("runtime", _FAIL, f"no socket of a container runtime at {found.socket}", remedy)
    if not found.version:
        return Finding("runtime", _WARN, f"{found.socket} does not answer", "try as root; look at its log")
    if found.name == "containerd" and _version(found.version) < (1, 6):
        return Finding("runtime", _WARN, f"containerd {found.version} speaks no CRI v1", "use containerd 1.6 or later")
    return Finding("runtime", _OK, f"{found.name} {found.version}")


def runtime_config(facts: Facts) -> Finding:
    found = facts.runtime
    if found.config_problem:
        return Finding("runtime-config", _WARN, found.config_problem, "let root read it, or correct it")
    if not found.config_file:
        return Finding("runtime-config", _INFO, "no configuration file: the runtime's defaults")
    return Finding("runtime-config", _OK, found.config_file)


def cri_events(facts: Facts) -> Finding:
    """containerd 1.x hands each event to one reader, and kubelet may be it."""
    found = facts.runtime
    if found.name == "containerd" and _version(found.version) >= (2, 0):
        return Finding("cri-events", _OK, "CRI events reach every subscriber")
    return Finding("cri-events", _INFO, "CRI events are not used here: new pods are seen by inotify on the cgroup tree")


def nri(facts: Facts) -> Finding:
    found = facts.runtime
    if found.nri_socket_exists:
        return Finding("nri", _OK, "the runtime's NRI socket is there")
    if found.nri_disabled:
        return Finding("nri", _INFO, f"NRI is disabled in {found.config_file}: the proxy or the reconciler edits")
    return Finding("nri", _INFO, "no NRI socket: the proxy or the reconciler edits")


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.lstrip("v").partition(".")
    minor = rest.partition(".")[0].partition("~")[0].partition("-")[0]
    return (int(major) if major.isdigit() else 0, int(minor) if minor.isdigit() else 0)
