"""A node of the model: pods that use, grow, end and come again, kubelet's and the sampler's lateness, two clocks.

What the daemon gets to see of it is ``snapshot``; what it does to pods is ``carry_out``. Nothing here knows what it
ought to do. Everything that happens is chosen by ``chance``, so that a seed gives the same world again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random

from msgspec import structs

from koord.model.qos import KubeQoS
from qosd.decide.reliefstate import Relief
from qosd.model.metric import Kind, Metric, Scope
from qosd.model.policy import HostFacts
from qosd.model.snapshot import Aggregate, EvictionPhase, EvictionState, NodeSnapshot, PodView, Window
from qosd.sense import meters
from qosd.sense.besteffort import BestEffortRow
from qosd.sense.limits import LIMITS
from qosd.sense.node import NodeRow
from qosd.sense.usage import USAGE
from tests.fakes.clock import S
from tests.qosd.eviction.modelpods import MIB, Pod, Series, made_pod
from tests.qosd.eviction.settings import make_rules, one_in
from tests.qosd.podviews import machine

ROOT = "/kubepods"
COLLECTORS = {"node": 1, "usage": 1, "besteffort": 1, "limits": 10}
"""With their periods, in seconds."""
STAYS = Metric("stays", "bytes", "What the kernel cannot take back of all pods.", Scope.TIER, Kind.GAUGE, "usage", 1, 0)
AT_ONCE = Metric("at_once", "bytes", "What it can take back at once of a pod.", Scope.POD, Kind.GAUGE, "usage", 1, 0)
"""What is so when ``usage`` is sampled, for those who judge; what the daemon reads of it is worked out of the kernel's
figures."""
_WITHDRAWN_S = 10
_POD, _TIER = USAGE[Scope.POD], USAGE[Scope.TIER]
_CPUS = {count: machine(count) for count in (4, 16, 32)}
_FILES = {
    1: (frozenset({"memory.force_empty", "cgroup.freeze"}), frozenset({"cgroup.freeze"}), frozenset[str]()),
    2: (
        frozenset({"memory.reclaim", "memory.high", "cgroup.freeze"}),
        frozenset({"memory.high"}),
        frozenset({"memory.reclaim", "cgroup.freeze"}),
    ),
}
_NEVER = 1 << 62


class World:
    """``counts``: what has happened, by name."""

    def __init__(self, chance: Random, counts: Counter[str]) -> None:
        self.chance, self.counts = chance, counts
        self.now_ns = chance.randrange(10**12)
        self.wall_offset_ns = 1_700_000_000 * S
        self.sampled_ns = 0
        self.version = chance.choice((1, 2))
        self.files = chance.choices(_FILES[self.version], (8, 1, 1))[0]
        self.cpus = chance.choice(tuple(_CPUS))
        self.memory = chance.choice((1024, 4096, 16384)) * MIB
        self.limit: int | None = chance.choice((None, self.memory // 2, self.memory * 9 // 10))
        self.swap = chance.choice((0, 0, 64 * MIB))
        self.system_bytes = chance.uniform(0.05, 0.3) * self.memory
        self.system_milli = chance.randrange(self.cpus * 300)
        self.be_limit_milli = chance.randrange(500, self.cpus * 1000)
        self.pods: dict[str, Pod] = {}
        self.everybody: dict[str, Pod] = {}
        """Those too that are gone."""
        self.made = 0
        self.evictions: dict[str, EvictionState] = {}
        self.stopping_ns: dict[str, int] = {}
        self.runtime_ns = self.kubelet_ns = self.now_ns
        self.late: dict[str, int] = {}
        """By source or collector, until when it is silent."""
        self.succeeded: dict[str, int] = {}
        self.values: dict[Metric, Mapping[str, float]] = {}
        self.series: dict[Metric, Series] = {}
        self.listed: tuple[PodView, ...] = ()
        self.host = HostFacts(self.version, files=self.files, memory_total_bytes=self.memory)
        self.policy = make_rules(chance, counts, self.host)
        self.windows: dict[Window, Mapping[str, Aggregate]] = {}
        for _ in range(chance.randrange(2, 12)):
            self.add_pod()

    # pods

    def add_pod(self) -> None:
        self.made += 1
        pod = made_pod(self.chance, f"p{self.made}", self.memory)
        self.pods[pod.uid] = self.everybody[pod.uid] = pod
        self.counts["pods that came"] += 1

    def remove_pod(self, pod: Pod) -> None:
        del self.pods[pod.uid]
        self.stopping_ns.pop(pod.uid, None)
        self.counts["pods that went"] += 1

    # time

    def pass_time(self, nanoseconds: int) -> None:
        """Everybody goes on; the kernel kills where there is no memory left."""
        self.now_ns += nanoseconds
        for pod in self.pods.values():
            pod.pass_time(nanoseconds / S)
        self._go_on_with_evictions()
        if self.limit is not None:
            self._make_room(self._charged_bytes() - self.limit)
        self._make_room(self.system_bytes + self._charged_bytes() - self.memory)
        while self._used_bytes() > self.memory and (able := [pod for pod in self.pods.values() if pod.anonymous > 1]):
            victim = max(able, key=lambda pod: pod.anonymous)
            victim.anonymous, victim.growth = 1.0, min(victim.growth, 0.0)
            self.counts["kernel OOM kills"] += 1

    def _make_room(self, excess: float) -> None:
        """The kernel takes back what it can, of the pods that have most first."""
        for pod in sorted(self.pods.values(), key=lambda pod: -(pod.clean() + pod.slab)):
            if excess > 0:
                before = pod.cache + pod.slab
                pod.reclaim(excess)
                excess -= before - pod.cache - pod.slab

    def _used_bytes(self) -> float:
        return self.system_bytes + sum(pod.anonymous for pod in self.pods.values()) + self._kernel_bytes()

    def _kernel_bytes(self) -> int:
        """Stacks and page tables."""
        return len(self.pods) * MIB

    def _charged_bytes(self) -> float:
        return self._kernel_bytes() + sum(pod.anonymous + pod.cache + pod.slab for pod in self.pods.values())

    def _go_on_with_evictions(self) -> None:
        for uid, state in list(self.evictions.items()):
            pod = self.pods.get(uid)
            if pod is None:
                continue
            if state.phase is EvictionPhase.STOPPING and self.now_ns >= self.stopping_ns.get(uid, _NEVER):
                self._stopped(pod, state)
            elif state.phase is EvictionPhase.STOPPED and one_in(self.chance, 6):
                self._after_stop(pod)
            elif (
                state.phase in (EvictionPhase.RESTARTED, EvictionPhase.FAILED)
                and self.now_ns - state.since_ns > 600 * S
            ):
                del self.evictions[uid]

    def _stopped(self, pod: Pod, state: EvictionState) -> None:
        del self.stopping_ns[pod.uid]
        if one_in(self.chance, 8):
            self.evictions[pod.uid] = structs.replace(state, phase=EvictionPhase.FAILED, problem="will not")
            self.counts["evictions that failed"] += 1
            return
        pod.is_running, pod.anonymous, pod.cache, pod.dirty, pod.slab = False, 1.0, 0.0, 0.0, 0.0
        pod.changed()
        self.evictions[pod.uid] = structs.replace(state, phase=EvictionPhase.STOPPED)

    def _after_stop(self, pod: Pod) -> None:
        """kubelet starts it again, or it is deleted."""
        if not pod.restarts:
            self.remove_pod(pod)
            return
        pod.attempt, pod.is_running = pod.attempt + 1, True
        pod.anonymous = self.chance.uniform(1, self.memory / 20)
        pod.changed()
        state = self.evictions[pod.uid]
        self.evictions[pod.uid] = structs.replace(state, phase=EvictionPhase.RESTARTED)
        self.counts["pods that kubelet started again"] += 1

    # what the daemon sees

    def list_pods(self) -> None:
        """What runtime and kubelet tell, as far as they do."""
        if self._speaks("runtime"):
            self.runtime_ns = self.now_ns
            kubelet_speaks = self._speaks("kubelet")
            if kubelet_speaks:
                self.kubelet_ns = self.now_ns
            for pod in self.pods.values():
                if kubelet_speaks and not pod.is_listed:
                    pod.is_listed = True
                    pod.changed()
            views = tuple([pod.view() for pod in self.pods.values()])
            if len(views) != len(self.listed) or any(a is not b for a, b in zip(views, self.listed, strict=True)):
                self.listed = views
            for uid in [uid for uid in self.evictions if uid not in self.pods]:
                del self.evictions[uid]

    def _speaks(self, source: str) -> bool:
        return self.now_ns >= self.late.get(source, 0)

    def sample(self) -> None:
        """One batch; a collector that is silent keeps its samples, until they are withdrawn."""
        self.sampled_ns = self.now_ns
        for name, period_s in COLLECTORS.items():
            if not self._speaks(name):
                last_ns = self.succeeded.get(name)
                if last_ns is None or self.now_ns - last_ns > max(_WITHDRAWN_S, 3 * period_s) * S:
                    for metric in _METRICS[name]:
                        self.values.pop(metric, None)
                self.counts["samples that were missing"] += 1
            elif self.now_ns - self.succeeded.get(name, -_NEVER) >= period_s * S * 0.9 or period_s == 1:
                self.succeeded[name] = self.now_ns
                for metric, values in getattr(self, f"_{name}")().items():
                    self.values[metric] = values
                    self.series.setdefault(metric, Series()).add(self.now_ns, values)

    def _node(self) -> Mapping[Metric, Mapping[str, float]]:
        milli = self.system_milli + sum(pod.uses_milli() for pod in self.pods.values())
        return {
            NodeRow.cpu_usage_cores: {"": min(milli, self.cpus * 1000) / 1000},
            NodeRow.memory_usage_bytes: {"": float(int(self._used_bytes()))},
            NodeRow.memory_total_bytes: {"": float(self.memory)},
            NodeRow.swap_free_bytes: {"": float(self.swap)},
        }

    def _besteffort(self) -> Mapping[Metric, Mapping[str, float]]:
        pods = [pod for pod in self.pods.values() if pod.qos == "BE"]
        requested = sum(pod.request for pod in pods if pod.kind == "batch" and pod.is_ready)
        used = min(sum(pod.uses_milli() for pod in pods), self.be_limit_milli)
        return {
            BestEffortRow.be_cpu_usage_cores: {"": used / 1000},
            BestEffortRow.be_cpu_request_cores: {"": requested / 1000},
            BestEffortRow.be_cpu_real_limit_cores: {"": self.be_limit_milli / 1000},
        }

    def _usage(self) -> Mapping[Metric, Mapping[str, float]]:
        measured = [pod for pod in self.pods.values() if pod.view() in self.listed and not one_in(self.chance, 200)]
        everybody = self.pods.values()
        anonymous, cache, slab = (
            sum([int(getattr(pod, kind)) for pod in everybody]) for kind in ("anonymous", "cache", "slab")
        )
        kernel = self._kernel_bytes()
        charged, told_slab = anonymous + cache + slab + kernel, slab if self.version == 2 else 0
        stays = meters.unreclaimable_bytes(self.version, charged, anonymous, cache, told_slab, 0)
        self.counts["samples of dentries and inodes"] += slab > charged // 4
        self.counts["samples of page cache"] += cache > charged // 2
        return {
            _POD.cpu_usage_cores: {pod.cgroup: pod.uses_milli() / 1000 for pod in measured},
            _POD.memory_usage_bytes: {pod.cgroup: float(int(pod.anonymous)) for pod in measured},
            _POD.memory_reclaimable_bytes: {pod.cgroup: self._reclaimable(pod) for pod in measured},
            _POD.memory_unreclaimable_bytes: {pod.cgroup: self._unreclaimable(pod) for pod in measured},
            AT_ONCE: {pod.cgroup: int(pod.clean()) + (int(pod.slab) if self.version == 2 else 0) for pod in measured},
            _POD.cpu_seconds: {pod.cgroup: pod.worked_s for pod in measured},
            _TIER.memory_usage_bytes: {ROOT: float(anonymous)},
            _TIER.memory_unreclaimable_bytes: {ROOT: float(stays)},
            _TIER.memory_working_set_bytes: {ROOT: float(charged - cache // 2)},
            STAYS: {ROOT: float(anonymous + (kernel if self.version == 2 else 0))},
        }

    def _unreclaimable(self, pod: Pod) -> float:
        anonymous, file, slab = int(pod.anonymous), int(pod.cache), int(pod.slab)
        charged, told_slab = anonymous + file + slab + MIB, slab if self.version == 2 else 0
        return float(meters.unreclaimable_bytes(self.version, charged, anonymous, file, told_slab, 0))

    def _reclaimable(self, pod: Pod) -> float:
        """As the kernel's files tell it, in whole bytes."""
        file, slab = int(pod.cache), int(pod.slab) if self.version == 2 else 0
        return float(meters.reclaimable_bytes(file, file - int(pod.clean()), slab, 0))

    def _limits(self) -> Mapping[Metric, Mapping[str, float]]:
        return {LIMITS[Scope.TIER].memory_limit_bytes: {} if self.limit is None else {ROOT: float(self.limit)}}

    def aggregate(self, windows: Iterable[Window]) -> None:
        """What the windows come to now."""
        self.windows = {
            window: self.series.setdefault(window.metric, Series()).over(
                window.over_s, self.sampled_ns, self.values.get(window.metric, {})
            )
            for window in windows
        }

    def snapshot(self, tick: int) -> NodeSnapshot:
        ages_s = {name: (self.now_ns - at_ns) / S for name, at_ns in self.succeeded.items()}
        ages_s |= {"pods": (self.now_ns - self.runtime_ns) / S, "kubelet": (self.now_ns - self.kubelet_ns) / S}
        return NodeSnapshot(
            tick=tick,
            wall_ns=self.now_ns + self.wall_offset_ns,
            monotonic_ns=self.now_ns,
            policy=self.policy,
            topology=_CPUS[self.cpus],
            pods=self.listed,
            values=dict(self.values),
            ages_s=ages_s,
            tiers={KubeQoS.GUARANTEED: ROOT},
            sampled_ns=self.sampled_ns,
            windows=self.windows,
            evictions=dict(self.evictions),
        )

    # what the daemon does

    def carry_out(self, relief: Relief) -> None:
        """Opinions hold from now on; some orders are lost."""
        by_cgroup = {pod.cgroup: pod for pod in self.pods.values()}
        bounds: dict[tuple[str, str], int] = {}
        for target, opinion in relief.opinions.items():
            assert isinstance(opinion.value, int)
            bounds[target.cgroup.removesuffix("/main"), target.name] = opinion.value
        for cgroup, pod in by_cgroup.items():
            pod.is_frozen = bounds.get((cgroup, "cgroup.freeze")) == 1
            quota = bounds.get((cgroup, "cpu_quota"))
            pod.quota_milli, pod.high = None if quota is None else quota // 100, bounds.get((cgroup, "memory.high"))
        for order in relief.one_shots:
            if (reclaimed := by_cgroup.get(order.target.cgroup)) is not None:
                reclaimed.reclaim(float("inf") if order.target.name == "memory.force_empty" else float(order.value))
        for eviction in relief.evictions:
            if not one_in(self.chance, 12):
                self.evict(eviction.uid, eviction.pod)
            else:
                self.counts["orders that were lost"] += 1

    def evict(self, uid: str, pod: str) -> None:
        before = self.evictions.get(uid)
        attempts = 1 if before is None else before.attempts + 1
        retry_ns = self.now_ns + min(300, 10 * 2 ** (attempts - 1)) * S
        self.evictions[uid] = EvictionState(uid, pod, EvictionPhase.STOPPING, attempts, self.now_ns, retry_ns)
        self.stopping_ns[uid] = self.now_ns + self.chance.choice((S // 3, S, S, 3 * S, 6 * S, 20 * S))

    def restart_daemon(self) -> None:
        """The next one knows what the undo record says; the times are its own."""
        for uid, state in self.evictions.items():
            retry_ns = self.now_ns + min(300, 10 * 2 ** (state.attempts - 1)) * S
            self.evictions[uid] = structs.replace(state, since_ns=self.now_ns, retry_ns=retry_ns)
        for pod in self.pods.values():
            pod.changed()
        for known in (self.values, self.series, self.succeeded):
            known.clear()
        self.counts["restarts of the daemon"] += 1

    def change_rules(self) -> None:
        self.policy = make_rules(self.chance, self.counts, self.host)
        self.counts["rules that changed"] += 1


_METRICS: Mapping[str, tuple[Metric, ...]] = {
    "node": (
        NodeRow.cpu_usage_cores, NodeRow.memory_usage_bytes, NodeRow.memory_total_bytes, NodeRow.swap_free_bytes,
    ),
    "usage": (
        _POD.cpu_usage_cores, _POD.memory_usage_bytes, _POD.memory_reclaimable_bytes, _POD.cpu_seconds,
        _POD.memory_unreclaimable_bytes, _TIER.memory_usage_bytes,
        _TIER.memory_unreclaimable_bytes, _TIER.memory_working_set_bytes, STAYS, AT_ONCE,
    ),
    "besteffort": (
        BestEffortRow.be_cpu_usage_cores, BestEffortRow.be_cpu_request_cores, BestEffortRow.be_cpu_real_limit_cores,
    ),
    "limits": (LIMITS[Scope.TIER].memory_limit_bytes,),
}  # fmt: skip
"""What each collector fills."""
