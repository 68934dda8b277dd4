"""What koordctl sees of the node: the daemon's parts in the form that NodeInspect asks for."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence

import koord
from koord.host import support
from koord.host.support import Support
from qosd.decide.gates import gates_shown
from qosd.frontends import FrontEnd
from qosd.inspect.sources import About, Feature, FrontEndState, LoopState, PolicyState, Sources
from qosd.node import JOURNAL, UNDO, Node
from qosd.pace import TickReason
from qosd.sense.sampler import Health
from qosd.sense.table import METRICS
from qosd.strategies import speakers

_SUPPORT = {
    Support.PRESENT: "",
    Support.ABSENT: "this kernel has no such file",
    Support.VENDOR: "only vendor kernels have it; the nearest upstream means is used instead",
    Support.UNKNOWN: "not known before kubelet has made its cgroups",
    Support.OTHER_VERSION: "the other cgroup version has it",
}


def sources(node: Node) -> Sources:
    """``node`` as NodeInspect asks it."""
    view = _View(node)
    return Sources(
        writer=node.writer,
        metrics=METRICS,
        store=node.sense.store,
        files=node.actuator.files,
        placed=lambda: node.actuator.tasks.placed,
        journal=node.journal,
        snapshot=lambda: node.loop.snapshot,
        decisions=lambda: node.loop.decisions,
        strategies=speakers(),
        plan=node.plan,
        switch=view.switch,
        loops=view.loops,
        front_ends=view.front_ends,
        features=view.features,
        about=view.about,
        policy=view.policy,
        warnings=view.warnings,
    )


class _View:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._began_s = time.monotonic()

    async def switch(self, enabled: bool, names: Sequence[str]) -> None:
        chosen, off = frozenset(names), frozenset(self._node.loop.switched_off)
        self._node.loop.switched_off = off - chosen if enabled else off | chosen
        await self._node.tick(TickReason.CHANGE)

    def loops(self) -> Sequence[LoopState]:
        now_ns = time.monotonic_ns()
        ages_s = self._node.sense.sampler.ages_s(now_ns)
        collectors = [_collector(name, ages_s, one) for name, one in self._node.sense.sampler.health().items()]
        return [*collectors, *self._pod_sources()]

    def _pod_sources(self) -> list[LoopState]:
        pods, problems = self._node.pods, "; ".join(self._node.pods.problems)
        return [LoopState("pods", pods.age_s, last_error=problems)]

    def front_ends(self) -> Sequence[FrontEndState]:
        ends, node = self._node.front_ends, self._node
        acting = ends.acting()
        attached = {
            FrontEnd.PROXY: node.hooks.server.connections > 0,
            FrontEnd.NRI: bool(node.plugin and node.plugin.runtime),
            FrontEnd.RECONCILER: True,
        }
        return [FrontEndState(one, attached[one], one is acting, self._detail(one)) for one in FrontEnd]

    def _detail(self, front_end: FrontEnd) -> str:
        node = self._node
        if front_end is FrontEnd.PROXY:
            return f"{node.options.hook_socket}: {node.hooks.server.connections} connections"
        if front_end is FrontEnd.RECONCILER:
            return node.front_ends.describe()
        if node.plugin is None:
            return "switched off (--nri-socket '')"
        status = node.plugin.status
        return node.plugin.runtime or f"{status.socket}: {status.failure or 'not there'}"

    def features(self) -> Sequence[Feature]:
        node = self._node
        found = support.survey(node.locator.tree, list(node.locator.tiers.values()))
        groups = ", ".join(sorted(node.rules.current.host.resctrl_groups))
        return [
            Feature("resctrl class groups", bool(groups), groups or "no group of a class exists; no task is moved"),
            *(Feature(*line) for line in gates_shown(speakers(), node.rules.current)),
            *(Feature(name, answer is Support.PRESENT, _SUPPORT[answer]) for name, answer in sorted(found.items())),
        ]

    def about(self) -> About:
        options = self._node.options
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return About(
            version=koord.__version__,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._began_s,
            rss_bytes=_rss_bytes(),
            open_files=len(os.listdir("/proc/self/fd")),
            open_files_limit=soft,
            rules_file=str(options.rules_file),
            runtime_endpoint=options.runtime_endpoint,
            cgroup_root=str(options.cgroup_root),
            journal_file=str(options.state_dir / JOURNAL),
            undo_file=str(options.run_dir / UNDO),
        )

    def policy(self) -> PolicyState:
        found = self._node.rules_file.provenance
        return PolicyState(found.origin, found.source, found.age_s(time.time()), found.problem)

    def warnings(self) -> Sequence[str]:
        node = self._node
        refused = [
            f"{target.group}/{target.name}: opinion of {who} refused: {why}"
            for target, all_of in node.actuator.files.refused.items()
            for who, why in all_of
        ]
        warnings = [f"no kernel file is written: {node.read_only}"] if node.read_only else []
        warnings += [f"journal: {node.journal.problem}"] if node.journal.problem else []
        warnings += [node.actuator.files.unsynced] if node.actuator.files.unsynced else []
        warnings += [node.cpu_manager.problem] if node.cpu_manager.problem else []
        warnings += [node.reservation.problem] if node.reservation.problem else []
        warnings += node.urgency.problems
        return [
            *warnings,
            *node.rules_file.warnings,
            *node.rules.pools.warnings,
            *node.locator.layout.problems,
            *node.pods.problems,
            *refused,
        ]


def _collector(name: str, ages_s: Mapping[str, float], health: Health) -> LoopState:
    return LoopState(
        name, ages_s.get(name), health.failures, health.last_error, health.disabled_reason, health.duration_us
    )


def _rss_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
