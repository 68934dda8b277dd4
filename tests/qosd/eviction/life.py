"""One life of a node in the model: a world, the strategies and the engine, and the oracle that looks at each step."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from msgspec import structs

from qosd.decide.decision import Strategy
from qosd.decide.reliefstate import Relief
from qosd.decide.runner import NO_STATES, Decisions, StrategyStates, decide_all, with_relief
from qosd.model.snapshot import NodeSnapshot, Window
from qosd.strategies import STRATEGIES
from qosd.strategies.eviction.evicting import Evicting
from tests.fakes.clock import S
from tests.qosd.eviction.oracle import Oracle
from tests.qosd.eviction.standing import Violation
from tests.qosd.eviction.world import COLLECTORS, World

EVICTING: tuple[Strategy[Any], ...] = tuple([each for each in STRATEGIES if isinstance(each, Evicting)])
_BEATS, _CHANGE, _URGENT, _GAP = "beat", "change", "urgent", "gap"


class Life:
    """``chance`` decides everything that happens; ``steps`` so far."""

    def __init__(self, chance: Random, counts: Counter[str]) -> None:
        self.chance, self.counts = chance, counts
        self.world = World(chance, counts)
        self.oracle = Oracle(self.world.everybody, counts)
        self.states: StrategyStates = NO_STATES
        self.declared: frozenset[Window] = frozenset()
        self.declared_by: object = None
        self.steps = 0

    def run(self, steps: int) -> None:
        """Raises Violation."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Time passes, things happen, the daemon decides, and what it decided is done."""
        self.steps += 1
        kind = self._pass_time()
        self._happen()
        self.world.list_pods()
        if kind != _CHANGE:
            self.world.sample()
        self._aggregate(kind)
        at = self.world.snapshot(self.steps)
        decisions = self._decided(at)
        self.oracle.check(at, decisions)
        relief = decisions.results[-1].decision
        assert isinstance(relief, Relief)
        self.world.carry_out(relief)

    def _pass_time(self) -> str:
        chance = self.chance
        (kind,) = chance.choices((_BEATS, _CHANGE, _URGENT, _GAP), (60, 25, 14, 1))
        nanoseconds = {
            _BEATS: chance.choice((S, S, S, S - S // 20, S + S // 10, 2 * S)),
            _CHANGE: chance.choice((S // 50, S // 10, S // 2)),
            _URGENT: S // 5,
            _GAP: chance.choice((5, 9, 31, 100)) * S,
        }[kind]
        self.world.pass_time(nanoseconds)
        return kind

    def _aggregate(self, kind: str) -> None:
        """As the loop does: windows of the rules in force, at new samples or new rules."""
        if self.declared_by is not self.world.policy:
            self.declared_by = self.world.policy
            self.declared = frozenset(each for one in EVICTING for each in one.windows_under(self.world.policy))
        elif kind == _CHANGE:
            return
        self.world.aggregate(self.declared)

    def _decided(self, at: NodeSnapshot) -> Decisions:
        """And that the order of the pod list makes no difference."""
        decisions, states = decide_all(at, EVICTING, self.states)
        if self.chance.randrange(40) == 0:
            turned = structs.replace(at, pods=at.pods[::-1])
            again, _ = with_relief(turned, *decide_all(turned, EVICTING, self.states), self.states)
        else:
            again = None
        decisions, states = with_relief(at, decisions, states, self.states)
        if again is not None and again.results[-1].decision != decisions.results[-1].decision:
            raise Violation("the order of the pod list makes a difference")
        self._check_errors(decisions)
        self.states = states
        return decisions

    @staticmethod
    def _check_errors(decisions: Decisions) -> None:
        for result in decisions.results:
            if result.errors:
                raise Violation(f"{result.name} raises: {result.sentence}")

    # what happens

    def _happen(self) -> None:
        world, chance = self.world, self.chance
        for uid in [uid for uid in world.pods if chance.randrange(150) == 0]:
            self._to_pod(uid)
        if len(world.pods) < 14 and chance.randrange(12 if len(world.pods) > 3 else 3) == 0:
            world.add_pod()
        if chance.randrange(30) == 0:
            self._be_silent()
        if chance.randrange(150) == 0:
            world.change_rules()
        if chance.randrange(400) == 0:
            self._restart()
        if chance.randrange(300) == 0:
            world.wall_offset_ns += chance.choice((-3600, -60, 60, 86_400)) * S
            self.counts["wall clocks that jumped"] += 1
        if chance.randrange(25) == 0:
            world.system_milli = chance.randrange(world.cpus * 900)
        if chance.randrange(25) == 0:
            world.system_bytes = chance.uniform(0.05, 0.7) * world.memory
        if chance.randrange(40) == 0:
            world.be_limit_milli = chance.randrange(0, world.cpus * 1000)

    def _to_pod(self, uid: str) -> None:
        world, chance = self.world, self.chance
        pod = world.pods[uid]
        what = chance.randrange(6)
        if what == 0:
            world.remove_pod(pod)
        elif what == 1:
            pod.deletion_s = (world.now_ns + world.wall_offset_ns) / S + chance.choice((-5, 1, 30, 300, 3600))
            self.counts["pods that are deleted"] += 1
        elif what == 2:
            pod.growth = chance.uniform(-1, 2) * world.memory / 100
        elif what == 3:
            pod.cpu_milli = chance.choice((0, 100, 1000, world.cpus * 500))
        elif what == 4 and pod.uid not in world.evictions:
            pod.phase, pod.is_running, pod.is_ready, pod.anonymous = "Succeeded", False, False, 1.0
            self.counts["pods that ended"] += 1
        else:
            pod.cache = chance.uniform(0, 1) * world.memory / chance.choice((2, 8))
            pod.dirty = pod.cache * chance.choice((0.0, 0.3, 1.0))
            pod.slab = chance.choice((0.0, chance.uniform(0, 1) * world.memory / 3))
            self.counts["pods that write files"] += pod.dirty > 0
        pod.changed()

    def _be_silent(self) -> None:
        """A source or a collector says nothing for a while."""
        world, chance = self.world, self.chance
        source = chance.choice((*COLLECTORS, "runtime", "kubelet", "kubelet"))
        world.late[source] = world.now_ns + chance.choice((1, 2, 4, 30, 120)) * S
        self.counts[f"{source} silent" if source in ("runtime", "kubelet") else "collectors that fell silent"] += 1

    def _restart(self) -> None:
        self.world.restart_daemon()
        self.states = NO_STATES
        self.oracle.restarted()
