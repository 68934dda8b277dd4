"""The node's loop: sense, snapshot, decide, act, in that order, in one thread.

A tick samples, makes the snapshot, decides and acts; between two beats a change of pods makes a shorter one that
samples nothing, and what is urgent one that samples at once. ``plan`` is the same decision on the newest snapshot
without the act. Invariant: everything here runs in the loop's own thread, one call after the other, so that a plan is
never made of half a tick; others read ``report``, which is replaced whole at the end of a tick.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from koord.host.topology import Topology
from koord.model.qos import KubeQoS
from koord.overcommit.amounts import ParsedAmounts
from qosd.act.actuator import Actuator
from qosd.act.leftovers import NOTHING_SAID, KubeletSays
from qosd.act.plan import TickPlan, TickResult
from qosd.decide.decision import AnyStrategy
from qosd.decide.runner import (
    BY_OPERATOR,
    NO_STATES,
    Decisions,
    EvictionStrategy,
    StrategyStates,
    decide_all,
    triggers_of,
    windows_of,
    with_relief,
)
from qosd.model.besteffort import NO_LIMITS, BestEffortLimits
from qosd.model.policy import EffectivePolicy
from qosd.model.snapshot import Aggregate, NodeSnapshot, PodView, Window
from qosd.predict.predictor import NOT_STATED, Predictor
from qosd.report import NOT_DECIDED, TickReport
from qosd.sense import window
from qosd.sense.build import Sense
from qosd.sense.prediction import PredictionRow
from qosd.sense.targets import Tiers
from qosd.tickscheduler import TickReason


@dataclass(frozen=True, slots=True)
class TickInputs:
    """What the event loop knows at the beginning of a tick.

    ``ages_s``: of ``pods`` and of each source of them; absent = never. ``allocatable``: as the cluster's Node states
    it. ``is_dismissed``: Koord is being removed from the node, so every strategy is off; None: no cluster could say so.
    """

    pods: tuple[PodView, ...]
    policy: EffectivePolicy
    topology: Topology
    tiers: Mapping[KubeQoS, str]
    kubelet_cpus: Mapping[str, str]
    ages_s: Mapping[str, float]
    allocatable: ParsedAmounts = NOT_STATED
    kubelet: KubeletSays = NOTHING_SAID
    is_dismissed: bool | None = None
    limits: BestEffortLimits = NO_LIMITS


class NodeLoop:
    """``wall`` and ``monotonic`` are clocks in nanoseconds. ``dry``: it decides and plans, but never acts.

    ``set_limits`` gets the limits of best-effort pods before a tick writes anything: hooks go by them from then on.

    ``switched_off``: names of strategies; replaced whole.
    """

    def __init__(
        self,
        sense: Sense,
        strategies: Sequence[AnyStrategy],
        actuator: Actuator,
        predictor: Predictor,
        *,
        wall: Callable[[], int],
        monotonic: Callable[[], int],
        dry: bool = False,
        set_limits: Callable[[BestEffortLimits], object] = lambda limits: None,
    ) -> None:
        self._set_limits = set_limits
        self._sense, self._strategies, self._actuator, self._predictor = sense, strategies, actuator, predictor
        self._wall, self._monotonic, self._dry = wall, monotonic, dry
        self._states: StrategyStates = NO_STATES
        self._ticks = 0
        self._windows: Mapping[Window, Mapping[str, Aggregate]] = {}
        self._aggregated_ns: int | None = None
        self.switched_off: Collection[str] = frozenset()
        self._is_dismissed: bool | None = None
        self.snapshot: NodeSnapshot | None = None
        self.report = self._new_report(None, NOT_DECIDED, None)

    def tick(self, inputs: TickInputs, reason: TickReason = TickReason.BEAT) -> TickResult | None:
        """Looks, decides and acts. Returns what was executed; None in a dry run."""
        self.look(inputs, reason)
        plan = self.decide()
        limits, result = plan.decisions.limits, None
        if not self._dry:
            if limits.by_strategy != inputs.limits.by_strategy:
                self._set_limits(limits)
            result = self._actuator.execute(plan)
        self.report = self._new_report(self.snapshot, plan.decisions, self._monotonic())
        return result

    def _new_report(self, snapshot: NodeSnapshot | None, decisions: Decisions, ended_ns: int | None) -> TickReport:
        return TickReport(
            self._actuator.reports,
            self._sense.sampler.health(),
            snapshot,
            decisions,
            triggers_of(self._strategies, decisions),
            ended_ns,
            self._is_dismissed,
        )

    @property
    def off(self) -> Collection[str]:
        """The names of the strategies that are off: all of them where Koord is taken off the node."""
        if not self._is_dismissed:
            return self.switched_off
        return frozenset((*(strategy.name for strategy in self._strategies), EvictionStrategy.name))

    def look(self, inputs: TickInputs, reason: TickReason = TickReason.BEAT) -> NodeSnapshot:
        """Samples, and makes the new snapshot."""
        if reason is not TickReason.CHANGE:
            self._sense.sampler.sample(
                inputs.pods,
                Tiers.of(inputs.tiers),
                inputs.policy.slo.host_applications or (),
                suppresses=inputs.policy.suppresses_cpu,
                urgent=reason is TickReason.URGENT,
            )
        now_ns, self._is_dismissed = self._monotonic(), inputs.is_dismissed
        if "pods" in inputs.ages_s:
            self._follow(inputs.pods, now_ns)
        self._actuator.files.leftovers.follow(inputs.pods, inputs.tiers, inputs.policy, inputs.kubelet, now_ns)
        self._ticks += 1
        self.snapshot = snapshot = self._with_acts(
            NodeSnapshot(
                tick=self._ticks,
                wall_ns=self._wall(),
                monotonic_ns=now_ns,
                policy=inputs.policy,
                limits=inputs.limits,
                topology=inputs.topology,
                pods=inputs.pods,
                values=self._sense.store.newest(),
                ages_s={**self._sense.sampler.ages_s(now_ns), **inputs.ages_s},
                kubelet_cpus=inputs.kubelet_cpus,
                tiers=inputs.tiers,
                sampled_ns=self._sense.sampler.sampled_ns,
                windows=self._aggregates(inputs.policy),
                absent=self._sense.sampler.absent(),
            )
        )
        if reason is TickReason.BEAT:
            self._predict(snapshot, inputs.allocatable)
        return snapshot

    def _predict(self, snapshot: NodeSnapshot, allocatable: ParsedAmounts) -> None:
        prediction = self._predictor.observe(snapshot, allocatable)
        if prediction is not None:
            self._sense.store.put(PredictionRow.panel, snapshot.monotonic_ns, prediction.rows())

    def _with_acts(self, snapshot: NodeSnapshot) -> NodeSnapshot:
        """Returns ``snapshot`` with the state that the acts until now have left."""
        files, evictions = self._actuator.files.report, self._actuator.evictions.under_way
        one_shots = self._actuator.one_shots.ended
        return replace(snapshot, files=files.states, refused=files.refused, evictions=evictions, one_shots=one_shots)

    def _follow(self, pods: tuple[PodView, ...], now_ns: int) -> None:
        self._actuator.files.follow(pods, now_ns)
        if not self._dry:
            self._actuator.evictions.follow(pods)

    def _aggregates(self, policy: EffectivePolicy) -> Mapping[Window, Mapping[str, Aggregate]]:
        """Returns the windows of the strategies that are on, worked out once for each set of samples.

        A strategy that has just been switched on, or to which a new policy gives other windows, sees its windows with
        the next samples.
        """
        sampled_ns = self._sense.sampler.sampled_ns
        if sampled_ns != self._aggregated_ns:
            self._aggregated_ns = sampled_ns
            declared = windows_of(self._strategies, policy, self.report.decisions)
            self._windows = window.aggregates(self._sense.store, declared, sampled_ns)
        return self._windows

    def decide(self) -> TickPlan:
        """Decides on the newest snapshot and keeps the strategies' new states."""
        assert self.snapshot is not None
        decisions, self._states = self._decided(self.snapshot)
        self.snapshot = self.snapshot.limited(decisions.limits)
        return self._actuator.plan(decisions)

    def plan(self) -> TickPlan | None:
        """Returns what the next tick would write if nothing changed until then; None before the first snapshot.

        Writes and remembers nothing.
        """
        if self.snapshot is None:
            return None
        return self._actuator.plan(self._decided(self._with_acts(self.snapshot))[0])

    def _decided(self, snapshot: NodeSnapshot) -> tuple[Decisions, StrategyStates]:
        off, off_by = self.off, "since Koord is being uninstalled" if self._is_dismissed else BY_OPERATOR
        decisions, states = decide_all(snapshot, self._strategies, self._states, off, off_by)
        return with_relief(snapshot, decisions, states, self._states, off, off_by)
