"""The node's loop: sense, snapshot, decide, act, in that order, in one thread.

A tick samples, makes the snapshot, decides and acts; between two ticks a change of pods makes a shorter one that
samples nothing. ``plan`` is the same decision on the newest snapshot without the act. Invariant: everything here runs
in the loop's own thread, one call after the other, so that a plan is never made of half a tick; what others read
(``snapshot``, ``decisions``) is replaced whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from koord.host.topology import Topology
from koord.model.qos import KubeQoS
from qosd.act.actuator import Actuator
from qosd.act.plan import Plan, Result
from qosd.decide.decision import Strategy
from qosd.decide.runner import NO_STATES, Decisions, StrategyStates, decide_all, relieved
from qosd.hooks.rules import Rules
from qosd.predict import gauges
from qosd.predict.predictor import Predictor
from qosd.sense import window
from qosd.sense.build import Sense
from qosd.sense.prediction import PredictionRow
from qosd.sense.targets import Tiers
from qosd.snapshot import Aggregate, NodeSnapshot, PodView, Window


@dataclass(frozen=True, slots=True)
class TickInputs:
    """What the event loop knows at the beginning of a tick. ``ages_s``: of ``pods`` and of each source of
    them; absent = never."""

    pods: tuple[PodView, ...]
    rules: Rules
    topology: Topology
    tiers: Mapping[KubeQoS, str]
    kubelet_cpus: Mapping[str, str]
    ages_s: Mapping[str, float]


class NodeLoop:
    """``wall`` and ``monotonic`` are clocks in nanoseconds. ``dry``: decide and plan, but never act."""

    def __init__(
        self,
        sense: Sense,
        strategies: Sequence[Strategy],
        actuator: Actuator,
        predictor: Predictor,
        *,
        wall: Callable[[], int],
        monotonic: Callable[[], int],
        dry: bool = False,
    ) -> None:
        self._sense, self._strategies, self._actuator, self._predictor = sense, strategies, actuator, predictor
        self._wall, self._monotonic, self._dry = wall, monotonic, dry
        self._states: StrategyStates = NO_STATES
        self._ticks = 0
        self._declared = frozenset(each for strategy in strategies for each in strategy.windows)
        self._windows: Mapping[Window, Mapping[str, Aggregate]] = {}
        self._aggregated_ns: int | None = None
        self.switched_off: Collection[str] = frozenset()
        self.snapshot: NodeSnapshot | None = None
        self.decisions: Decisions | None = None
        self.ended_ns: int | None = None
        """When the last tick ended, by the monotonic clock."""

    def tick(self, inputs: TickInputs, *, sample: bool = True) -> Result | None:
        """Look, decide, act; what was executed, None if nothing may be."""
        self.look(inputs, sample=sample)
        plan = self.decide()
        result = None if self._dry else self._actuator.execute(plan)
        self.ended_ns = self._monotonic()
        return result

    def look(self, inputs: TickInputs, *, sample: bool = True) -> NodeSnapshot:
        """Sense: the new snapshot."""
        if sample:
            self._sense.sampler.sample(
                inputs.pods,
                Tiers.of(inputs.tiers),
                inputs.rules.slo.host_applications or (),
                suppresses=inputs.rules.suppresses_cpu,
            )
        now_ns = self._monotonic()
        if "pods" in inputs.ages_s:
            self._follow(inputs.pods, now_ns)
        self._ticks += 1
        self.snapshot = snapshot = NodeSnapshot(
            tick=self._ticks,
            wall_ns=self._wall(),
            monotonic_ns=now_ns,
            rules=inputs.rules,
            topology=inputs.topology,
            pods=inputs.pods,
            values=self._sense.store.newest(),
            ages_s={**self._sense.sampler.ages_s(now_ns), **inputs.ages_s},
            kubelet_cpus=inputs.kubelet_cpus,
            tiers=inputs.tiers,
            files=self._actuator.files.states,
            refused=self._actuator.files.refused,
            evictions=self._actuator.evictions.under_way,
            sampled_ns=self._sense.sampler.sampled_ns,
            windows=self._aggregates(),
            absent=self._sense.sampler.absent(),
        )
        if sample and (prediction := self._predictor.observe(snapshot)) is not None:
            self._sense.store.put(PredictionRow.panel, now_ns, gauges.rows(prediction))
        return snapshot

    def _follow(self, pods: tuple[PodView, ...], now_ns: int) -> None:
        self._actuator.files.follow(pods, now_ns)
        if not self._dry:
            self._actuator.evictions.follow(pods)

    def _aggregates(self) -> Mapping[Window, Mapping[str, Aggregate]]:
        """Those of the newest samples, worked out once for them."""
        sampled_ns = self._sense.sampler.sampled_ns
        if sampled_ns != self._aggregated_ns:
            self._aggregated_ns = sampled_ns
            self._windows = window.aggregates(self._sense.store, self._declared, sampled_ns)
        return self._windows

    def decide(self) -> Plan:
        """Decide on the newest snapshot and keep what the strategies remember."""
        assert self.snapshot is not None
        self.decisions, self._states = self._decided(self.snapshot)
        return self._actuator.plan(self.decisions)

    def plan(self) -> Plan | None:
        """What the next tick would write if nothing changed until then; None before the first snapshot.

        Nothing is written or remembered.
        """
        if self.snapshot is None:
            return None
        acted = self._actuator  # since the tick that made the snapshot
        snapshot = replace(
            self.snapshot,
            files=acted.files.states,
            refused=acted.files.refused,
            evictions=acted.evictions.under_way,
        )
        return self._actuator.plan(self._decided(snapshot)[0])

    def _decided(self, snapshot: NodeSnapshot) -> tuple[Decisions, StrategyStates]:
        decisions, states = decide_all(snapshot, self._strategies, self._states, self.switched_off)
        return relieved(snapshot, decisions, states, self._states, self.switched_off)
