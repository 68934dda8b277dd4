"""Checks of kubelet, the container runtime and other agents: what Koord builds on, and what it may quarrel with."""

from __future__ import annotations

from koord.host.layout import kubepods_path
from koord.model.cgroup_parent import CgroupStyle
from koord.model.locations import PROXY_SOCKET, RESCTRL_ROOT, RULES_FILE
from koord.model.readable import shorten_list
from koordctl.doctor import Judgement, fail, info, ok, warn
from koordctl.node.facts import Facts
from koordctl.node.settings import CONTAINERD, CRIO, DOCKER

_STYLES = frozenset(style.value for style in CgroupStyle)
_DEFAULT_DRIVER = "cgroupfs"  # kubelet's, where neither flag nor file says
_HAVE_RUNTIME_CONFIG = {CONTAINERD: (2, 0), CRIO: (1, 28)}  # CRI's RuntimeConfig, and from which version on
_KNOWN_RUNTIMES = frozenset((CONTAINERD, CRIO, DOCKER))
_BESIDES = {
    CRIO: "; behind the proxy kubelet takes statistics from CRI instead of its own cAdvisor",
    DOCKER: ", through cri-dockerd",
}
_SHOWN, _KOORDLETS = 3, "koordlet-"
_RESIZE = "InPlacePodVerticalScaling"
_ALPHA_RESIZE = tuple((1, minor) for minor in range(27, 33))


def kubelet(facts: Facts) -> Judgement:
    found = facts.kubelet
    if not found.running:
        return warn("no kubelet is running here: only pods that the runtime knows are seen", "start kubelet")
    if found.config_problem:
        return warn(found.config_problem, "let root read it, or correct it")
    return ok(f"running, configured by {found.config_file or 'flags alone'}")


def kubelet_version(facts: Facts) -> Judgement:
    """CRI v1 is spoken from 1.23 on; until 1.23 kubelet could drive Docker itself, without any CRI."""
    found = facts.kubelet
    if found.minor is None:
        return info("kubelet's version is not known")
    if found.minor < (1, 23):
        text = f"kubelet {found.version} speaks CRI v1alpha2 only, which Koord does not read"
        return fail(text, "use kubelet 1.23 or later")
    if found.minor < (1, 24) and found.container_runtime != "remote":
        text = f"kubelet {found.version} drives Docker by its built-in dockershim, so no CRI call can be edited"
        return fail(text, "move the node to containerd, or to Docker through cri-dockerd")
    return ok(f"kubelet {found.version}")


def kubelet_restart(facts: Facts) -> Judgement:
    """kubelet admits running pods again when it starts, against what the Node offers by then."""
    found = facts.restart
    if found is None:
        return info("no cluster was asked whether a restart of kubelet would end pods")
    if found.problem:
        return info(f"whether a restart of kubelet would end pods is not known: {found.problem}")
    if found.shortages:
        text = f"a kubelet that restarts now ends pods: {'; '.join(found.shortages)}"
        remedy = "wait until pods have finished or the Node offers more; see coverRunningPods in docs/overcommit.md"
        return warn(text, remedy)
    return ok("the Node offers all that its running pods request")


def cgroup_driver(facts: Facts) -> Judgement:
    """Tree, kubelet and runtime must mean the same driver, or pods are in other cgroups than Koord expects."""
    cgroup, said = facts.cgroup, facts.kubelet
    if not said.cgroups_per_qos:
        text = "kubelet runs without cgroups per QoS, so a pod's class cannot be seen"
        return fail(text, "remove cgroupsPerQOS: false (--cgroups-per-qos)")
    if not cgroup.kube_root:
        return info("neither kubelet nor the runtime nor the tree says which driver")
    mine, runtimes = said.cgroup_driver or _DEFAULT_DRIVER, facts.runtime.cgroup_driver
    if said.running and runtimes and mine != runtimes:
        return _drivers_differ(facts, mine)
    if not runtimes and _asks_runtime_for_driver(facts):
        mine = cgroup.driver or mine  # what the runtime said is seen in the tree that kubelet made
    expected = kubepods_path(said.cgroup_root, CgroupStyle(mine)) if mine in _STYLES else ""
    if said.running and cgroup.kube_root != expected:
        remedy = "restart kubelet, so that it makes its cgroups by its configuration; drain the node first"
        text = (
            "; ".join(cgroup.layout_problems) or f"kubelet is set to {expected}, and pods are below {cgroup.kube_root}"
        )
        return fail(text, remedy)
    if cgroup.layout_problems:
        return warn("; ".join(cgroup.layout_problems), "make kubelet and the runtime say the same")
    return ok(cgroup.driver)


def _drivers_differ(facts: Facts, kubelets: str) -> Judgement:
    runtime = facts.runtime
    name = runtime.name or "the runtime"
    where = runtime.config_file or "its default"
    differ = f"kubelet's cgroup driver is {kubelets}, and {name}'s is {runtime.cgroup_driver} ({where})"
    text = "; ".join((differ, *facts.cgroup.layout_problems))
    remedy = "set the same driver in kubelet (cgroupDriver) and the runtime (SystemdCgroup), restart both"
    if _asks_runtime_for_driver(facts):
        return warn(f"{text}; kubelet {facts.kubelet.version} takes the runtime's", remedy)
    return fail(text, remedy)


def _asks_runtime_for_driver(facts: Facts) -> bool:
    """Returns whether kubelet takes the driver from CRI's RuntimeConfig (by default from 1.31), not from its file."""
    gate = facts.kubelet.feature_gates.get("KubeletCgroupDriverFromCRI", True)
    asks = gate and facts.kubelet.minor is not None and facts.kubelet.minor >= (1, 31)
    since = _HAVE_RUNTIME_CONFIG.get(facts.runtime.name)
    return asks and since is not None and facts.runtime.minor >= since


def cpu_manager(facts: Facts) -> Judgement:
    policy = facts.kubelet.cpu_manager_policy or "none"
    rules = facts.koord.rules_cpu_manager_policy
    remedy = f"set node.cpuManagerPolicy: {policy} in {facts.koord.rules_file or 'the rules file'}"
    if facts.kubelet.running and policy == "none" and rules == "static":
        return fail("kubelet's cpuManagerPolicy is none, and the rules say static", remedy)
    if policy != "static":
        return ok(f"policy {policy}")
    text = "static: CPUs that kubelet gave exclusively stay untouched, pods without a QoS label keep kubelet's CPUs"
    if rules == "none":
        return warn(f"{text}, although the rules say none", remedy)
    return info(text)


def in_place_resize(facts: Facts) -> Judgement:
    """Where the gate is on, kubelet reports what the runtime says of a container, and the scheduler counts that.

    While it was alpha, until 1.32, kubelet also updates a container of which it reads anything but the pod's spec.
    """
    found = facts.kubelet
    gate = found.feature_gates.get(_RESIZE, None if found.minor in _ALPHA_RESIZE else True)
    if gate is None:
        gate = found.feature_gates.get("AllAlpha", False)
    if not gate or (found.minor is not None and found.minor < _ALPHA_RESIZE[0]):
        return ok(f"feature gate {_RESIZE} is off")
    if facts.koord.rules_limits_in_cri:
        is_alpha = found.minor in _ALPHA_RESIZE or (found.minor is None and _RESIZE in found.feature_gates)
        resizes = ", and resizes such containers without end" if is_alpha else ""
        text = (
            "node.limitsInCRI is true: but for what koord-runtime-proxy gives back, kubelet takes limits that Koord "
            f"edited for its own{resizes}: batch pods count as CPU and memory that services requested"
        )
        return warn(text, f"take node.limitsInCRI out of {facts.koord.rules_file or RULES_FILE}")
    text = f"feature gate {_RESIZE} is on; kubelet reads what it requested of a container, and a resize is a new base"
    return ok(text)


def kubelet_memory_qos(facts: Facts) -> Judgement:
    writes = facts.kubelet.writes_memory_protection
    if writes:
        remedy = "turn off kubelet's gate MemoryQoS, or Koord's memoryQOS"
        return warn("kubelet's MemoryQoS writes memory.min and memory.high", remedy)
    if writes is None:
        return info("whether kubelet's MemoryQoS writes memory.min is not known")
    return ok("kubelet leaves memory.min and memory.high alone")


def runtime(facts: Facts) -> Judgement:
    found = facts.runtime
    if not found.socket_exists:
        remedy = "start it, or name its socket: koord-qosd --runtime-endpoint"
        return fail(f"no socket of a container runtime at {found.socket}", remedy)
    if not found.can_be_asked:
        return info(f"{found.socket} is there, and was not asked")
    if not found.version:
        return warn(f"{found.socket} does not answer", "try as root; look at its log")
    if found.name not in _KNOWN_RUNTIMES:
        text = f"{found.name} {found.version} at {found.socket} is no runtime that Koord knows"
        return fail(text, "use containerd (1.6 or later), cri-o, or Docker through cri-dockerd")
    if found.name == CONTAINERD and found.minor < (1, 6):
        return fail(f"containerd {found.version} speaks no CRI v1", "use containerd 1.6 or later")
    if found.name == CONTAINERD and found.minor >= (3, 0):
        return warn(f"containerd {found.version}: Koord was tried with 1.6 to 2.3", "look for a newer Koord")
    return ok(f"{found.name} {found.version}{_BESIDES.get(found.name, '')}")


def runtime_config(facts: Facts) -> Judgement:
    found = facts.runtime
    if found.config_problem:
        return warn(found.config_problem, "let root read it, or correct it")
    if not found.config_file:
        return info("no configuration file: the runtime's defaults")
    return ok(found.config_file)


def cri_events(facts: Facts) -> Judgement:
    """containerd 1.x hands each event to one reader, and kubelet may be it."""
    found = facts.runtime
    if found.name == CONTAINERD and found.minor >= (2, 0):
        return ok("CRI events reach every subscriber")
    return info("CRI events are not used here: new pods are seen by inotify on the cgroup tree")


def nri(facts: Facts) -> Judgement:
    found = facts.runtime
    if found.nri_socket_exists and "koord" in facts.kubelet.runtime_endpoint:
        return info("NRI and the proxy are both there: the proxy edits, NRI is answered without edits")
    if found.nri_socket_exists:
        return ok("the runtime's NRI socket is there")
    if found.nri_disabled:
        return info(f"NRI is disabled in {found.config_file}: the proxy or the reconciler edits")
    return info("no NRI socket: the proxy or the reconciler edits")


def other_agents(facts: Facts) -> Judgement:
    """Two agents that write the same cgroups or edit the same calls undo each other's work."""
    others = facts.others
    acting = [f"{agent} is running" for agent in others.agents]
    if others.proxy_socket_holder and others.proxy_socket_holder not in others.agents:
        acting.append(f"{others.proxy_socket_holder} listens on {PROXY_SOCKET}")
    harmful = [one for one in others.hook_files if one.answers or one.fails_calls]
    acting += [f"{one.file} registers the hook server {one.endpoint or '(none)'}" for one in harmful]
    if acting:
        remedy = "remove that agent and its files from the node: two agents undo each other's work"
        return fail("; ".join(acting), remedy)
    if others.hook_files:
        names = ", ".join(one.file for one in others.hook_files)
        return warn(f"left behind by another agent: {names}", "remove these files")
    return ok("no other agent between kubelet and the runtime")


def leftovers(facts: Facts) -> Judgement:
    """koordlet stops without giving back what it wrote; only koordlet uses resctrl groups of single pods."""
    groups = sorted(name for name in facts.resctrl_classes if name.startswith(_KOORDLETS))
    if groups:
        remedy = f"rmdir them below {RESCTRL_ROOT}: the kernel puts their tasks back"
        return warn(f"resctrl groups of koordlet: {', '.join(shorten_list(groups, _SHOWN))}", remedy)
    if facts.daemon is not None:
        return ok("koord-qosd takes back what another agent left: koordctl journal shows it as leftover")
    if facts.leftovers:
        text = f"{len(facts.leftovers)} values of another agent: {'; '.join(shorten_list(facts.leftovers, _SHOWN))}"
        return warn(text, "koord-qosd takes them back when it starts")
    return ok("kubelet's tiers hold what kubelet writes")
