"""The daemon's own state, beside its newest tick: its sources, its front ends, its missing rights.

All of that lives in the event loop, where these functions are called; those that read files say so, and are called in a
thread.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable

import koord
from koord.host import files, support
from koord.host.cgroup import Tree
from koord.host.support import Support
from koord.pb.koord import inspect_pb2 as inspect
from qosd.decide.gates import gates_shown, what_lacks
from qosd.frontends import FrontEnd
from qosd.model.policy import EffectivePolicy
from qosd.node import JOURNAL, UNDO, Node
from qosd.options import Options
from qosd.policy.provenance import Provenance
from qosd.report import TickReport
from qosd.sense.sampler import CollectorHealth
from qosd.strategies import speakers

_SUPPORT = {
    Support.PRESENT: "",
    Support.ABSENT: "this kernel has no such file",
    Support.VENDOR: "only kernels of some vendors have it, and this one does not",
    Support.UNKNOWN: "not known before kubelet has made its cgroups",
    Support.OTHER_VERSION: "the other cgroup version has it",
}


def loops(node: Node, monotonic_ns: int) -> list[inspect.Loop]:
    """Returns the state of the collectors and of the sources of pods; without ``age_s``: it has never succeeded."""
    pods = node.pods
    collectors = [_collector(name, health, monotonic_ns) for name, health in node.loop.report.collectors.items()]
    return [*collectors, inspect.Loop(name="pods", age_s=pods.age_s, last_error="; ".join(pods.problems))]


def _collector(name: str, health: CollectorHealth, monotonic_ns: int) -> inspect.Loop:
    success_ns = health.last_success_ns
    return inspect.Loop(
        name=name,
        age_s=None if success_ns is None else (monotonic_ns - success_ns) / 1e9,
        failures=health.failures,
        last_error=health.last_error,
        disabled=health.disabled_reason,
        duration_us=health.duration_us,
    )


def front_ends(node: Node) -> list[inspect.FrontEnd]:
    acting, connections, plugin = node.front_ends.acting(), node.hooks.server.connections, node.plugin
    if plugin is None:
        nri = "switched off (--nri-socket '')"
    else:
        nri = plugin.runtime or f"{plugin.status.socket}: {plugin.status.failure or 'not there'}"
    said = {
        FrontEnd.PROXY: (connections > 0, f"{node.options.hook_socket}: {connections} connections"),
        FrontEnd.NRI: (bool(plugin and plugin.runtime), nri),
        FrontEnd.RECONCILER: (True, node.front_ends.describe()),
    }
    return [
        inspect.FrontEnd(name=name, attached=attached, acting=name is acting, detail=detail)
        for name, (attached, detail) in said.items()
    ]


def policy(node: Node, wall_ns: int) -> inspect.Policy:
    """Returns where the policy in force comes from; without ``age_s``: no source ever said it."""
    source, now_s = node.policy, wall_ns / 1e9
    message = _provenance(source.overall, now_s)
    message.layers.extend(_provenance(each, now_s, layer) for layer, each in source.layers.items())
    return message


def cluster(node: Node) -> inspect.Cluster | None:
    """Returns the connection to the cluster; None without one."""
    status = node.cluster_status()
    if status is None:
        return None
    return inspect.Cluster(
        server=status.server,
        node_name=status.node_name,
        is_reachable=status.is_reachable,
        silent_s=status.silent_s,
        sentence=status.sentence,
        parts=[
            inspect.ClusterPart(
                name=part.name, state=part.state, age_s=part.age_s, failures=part.failures, says=part.says
            )
            for part in status.parts
        ],
    )


def _provenance(found: Provenance, now_s: float, layer: str = "") -> inspect.Policy:
    return inspect.Policy(
        origin=found.origin, source=found.source, age_s=found.age_s(now_s), problem=found.problem, layer=layer
    )


def lacking(report: TickReport) -> dict[str, str]:
    """Returns by strategy the rights that koord-qosd lacks for an enabled one."""
    if report.snapshot is None:
        return {}
    on = {result.name for result in report.decisions.results if not result.is_off}
    policy = report.snapshot.policy
    return {each.name: lacks for each in speakers() if each.name in on and (lacks := what_lacks(each, policy))}


def warnings(node: Node) -> list[str]:
    """Returns what is wrong, one sentence each."""
    files, journal = node.loop.report.files, node.journal
    problems = (
        f"no kernel file is written: {node.read_only}" if node.read_only else "",
        f"journal: {journal.problem}" if journal.problem else "",
        files.unsynced,
        *node.actuator.files.leftovers.kept,
        node.cpu_manager.problem,
        node.kubelet_config.problem,
        "" if node.pod_lists is None else node.pod_lists.problem,
        *node.policy.warnings,
        *node.policy.cpu_warnings,
        *node.host.problems,
        *node.pods.problems,
        *(
            f"strategy {name}: koord-qosd may not do all that it needs ({lacks}): run koordctl install; "
            "of the chart's pod set koordlet.extraCapabilities"
            for name, lacks in lacking(node.loop.report).items()
        ),
    )
    refused = [
        f"{target.cgroup}/{target.name}: opinion of {strategy} refused: {why}"
        for target, refusals in files.refused.items()
        for strategy, why in refusals
    ]
    results = node.loop.report.decisions.results
    decided = [f"{result.name}: {warning}" for result in results for warning in result.decision.warnings]
    return [*filter(None, problems), *decided, *refused]


def process(options: Options, uptime_s: float, journal_dropped: int) -> inspect.Daemon:
    """Returns the daemon's own figures; reads files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return inspect.Daemon(
        version=koord.__version__,
        pid=os.getpid(),
        uptime_s=uptime_s,
        rss_bytes=_rss_bytes(),
        open_files=len(os.listdir("/proc/self/fd")),
        open_files_limit=soft,
        rules_file=str(options.rules_file),
        runtime_endpoint=options.runtime_endpoint,
        cgroup_root=str(options.cgroup_root),
        journal_file=str(options.state_dir / JOURNAL),
        journal_dropped=journal_dropped,
        undo_file=str(options.run_dir / UNDO),
    )


def features(tree: Tree, tiers: Iterable[str], policy: EffectivePolicy) -> list[inspect.Feature]:
    """Returns what this node supports, and how that is known or what is used instead; reads files."""
    classes = ", ".join(sorted(policy.host.resctrl_groups))
    return [
        inspect.Feature(
            name="resctrl class groups",
            supported=bool(classes),
            detail=classes or "no resctrl group of a class exists; no task is moved",
        ),
        *(
            inspect.Feature(name=name, supported=is_on, detail=detail)
            for name, is_on, detail in gates_shown(speakers(), policy)
        ),
        *(
            inspect.Feature(name=name, supported=answer is Support.PRESENT, detail=support_detail(name, answer))
            for name, answer in sorted(support.survey(tree, list(tiers)).items())
        ),
    ]


def support_detail(name: str, answer: Support) -> str:
    """Returns how the answer is known; for a file that on v1 only vendors have, that v2 has it everywhere."""
    if answer is Support.VENDOR and files.row(name).vendor_on == (1,):
        return f"on cgroup v1 {_SUPPORT[answer]}; on cgroup v2 every kernel has it"
    return _SUPPORT[answer]


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
