"""One life of a cluster in the model: its API server, one or two replicas of the scheduler, and everything that goes
wrong between them. Each step is one thing that happens; between them the replicas do what there is to do.

Every few hundred steps the cluster comes to rest, all are told everything, and the rules are checked (`rules`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from random import Random

from koord.kube.errors import APIError, Unreachable
from koord.scheduling.queue import PARKED_S
from tests.koord_scheduler.simulation.apiserver import PODS, APIServer, Call, Watch
from tests.koord_scheduler.simulation.kinds import FATES, KINDS
from tests.koord_scheduler.simulation.replica import LEASES_ROOT, Decision, Replica, Violation
from tests.koord_scheduler.simulation.rules import Truth, check_pods, check_replica
from tests.koord_scheduler.simulation.world import World
from tests.support.simloop import SimLoop

STEPS_OF_A_LIFE = 1500
_SHORT_S, _LONG_S = 14.0, PARKED_S + 30.0
"""How long a rest is after the last change: what was woken has backed off; and what nothing woke was tried."""
_MOST_REST_S = 20_000.0
_REFUSED = (
    (409, "Conflict", "Operation cannot be fulfilled"),
    (403, "Forbidden", "a webhook says no"),
    (422, "Invalid", "a plugin says no"),
)
_NOT_ANSWERED = (
    (429, "TooManyRequests", "too many requests"),
    (500, "InternalError", "etcdserver: request timed out"),
    (503, "ServiceUnavailable", "the server is shutting down"),
    (504, "Timeout", "the request timed out"),
)


class Life:
    """``number`` decides everything that happens, and what kind of life it is; ``steps`` so far."""

    def __init__(self, number: int, counts: Counter[str]) -> None:
        self.number, self.counts = number, counts
        self.kind = kind = KINDS[number % len(KINDS)]
        self.chance = chance = Random(number)
        random.seed(number)
        self.steps = 0
        self.loop = SimLoop()  # type: ignore[abstract]  # of what a loop has it has what the scheduler uses
        self._trouble = chance.choice(kind.troubles)
        self._is_calm = False
        self.server = APIServer(self.loop, self._refusal, chance.randrange(2) == 0)
        self.world = World(self.server, chance, counts, kind)
        self.replicas: list[Replica] = []
        self._former: dict[str, Decision] = {}
        self._most_replicas = chance.choice((1, 2, 2))
        self._tick_s = chance.choice((0.0, 0.0, 0.0021))
        self._made = 0
        self._next_rest = self._drawn_rest()
        self._late: list[Call] = []
        self._calmed = 0

    def run(self, steps: int) -> None:
        """Raises Violation, or what a replica fails with."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self.loop)
        try:
            while self.steps < steps:
                self.step()
            self._rest(is_long=True)
            self._end_all()
        finally:
            for replica in self.replicas:
                replica.kill()
            while self.replicas:
                self.loop.run_ready()
                self.replicas = [each for each in self.replicas if not each.is_over]
                self.loop.fire_timer()
            asyncio._set_running_loop(before)

    def step(self) -> None:
        self.steps += 1
        (do,) = self.chance.choices(
            (self.world.happen, self._tell, self._answer, self._pass_time, self._replica), self.kind.steps
        )
        do()
        self._go_on(self.chance.randrange(12) if self.chance.randrange(8) == 0 else None)
        if self.steps >= self._next_rest:
            self._next_rest = self.steps + self._drawn_rest()
            self._rest(is_long=self.chance.random() < self.kind.long_rests)

    def _drawn_rest(self) -> int:
        return self.chance.randrange(*self.kind.rest_steps)

    def _go_on(self, most: int | None = None) -> None:
        """The replicas do what there is to do, or a part of it; and what they did is looked at."""
        if most is None:
            self.loop.run_ready()
        else:
            self.loop.run_ready(most)
        self._answer_leases()
        for replica in self.replicas:
            if replica.failure is not None and replica.sender.is_alive:
                raise replica.failure
            if replica.is_leading:
                replica.books.check_kept()
            elif replica.sender.is_alive and replica.view.state.assumed:
                raise Violation(f"{replica.name} assumes {sorted(replica.view.state.assumed)} and does not lead")
        self.replicas = [each for each in self.replicas if not each.is_over]

    # what happens to replicas

    @property
    def alive(self) -> list[Replica]:
        return [each for each in self.replicas if each.sender.is_alive]

    @property
    def serving(self) -> list[Replica]:
        """Those that nobody has ended."""
        return [each for each in self.alive if not each.is_ending]

    @property
    def leader(self) -> Replica | None:
        return next((each for each in self.alive if each.is_leading), None)

    def _replica(self) -> None:
        serving = self.serving
        if len(serving) < self._most_replicas:
            self._start()
            return
        replica = self.chance.choice(serving)
        if self.chance.randrange(2):
            self.counts["replicas killed"] += 1
            replica.kill()
        else:
            self.counts["replicas ended"] += 1
            replica.end()

    def _start(self) -> None:
        self._made += 1
        self.counts["replicas started"] += 1
        name, seed = f"r{self._made}", self.chance.randrange(1 << 30)
        self.replicas.append(Replica(name, self.server, self._former, self.counts, seed, self._tick_s))

    def _end_all(self) -> None:
        for replica in self.serving:
            replica.end()
        for _ in range(1000):
            if not self.replicas:
                return
            self._settle()
            self._pass(1.0)
        raise Violation("a replica does not end")

    # what happens to requests and watches

    def _refusal(self) -> Exception | None:
        if self._is_calm or self.chance.random() >= self._trouble / 2:
            return None
        self.counts["lists and watches refused"] += 1
        if self.chance.randrange(2):
            return Unreachable("no connection", may_have_arrived=False)
        return APIError(*self.chance.choice(_NOT_ANSWERED))

    def _tell(self) -> None:
        """A watch says something, twice, or nothing any more."""
        chance, server = self.chance, self.server
        behind = [each for each in server.watches if not each.is_over and server.untold(each)]
        if not behind:
            if server.watches and chance.randrange(4) == 0:
                server.bookmark(chance.choice(server.watches))
            return
        watch = chance.choice(behind)
        if chance.random() < self._trouble / 2:
            self._trouble_watch(watch)
            return
        server.tell(watch, chance.choice((1, 1, 2, 1000, 1000)))
        if chance.randrange(20) == 0:
            self.counts["events told twice"] += 1
            watch.tell(watch.last)

    def _trouble_watch(self, watch: Watch) -> None:
        kind = self.chance.randrange(4)
        if kind == 0:
            self.counts["watches cut"] += 1
            watch.end(is_broken=self.chance.randrange(2) == 0)
        elif kind == 1:
            self.counts["watches expired"] += 1
            self.server.compact(watch.path)
            for each in self.server.watches:
                if each.path == watch.path and each.version < self.server.version:
                    self.server.expire(each)
        elif kind == 2:
            self.counts["events missed"] += 1
            watch.version = self.server.untold(watch)[0].version
            self.server.tell(watch, 1000)
            self.server.expire(watch)
        else:
            self.server.fall_behind(watch.path)

    def _answer(self) -> None:
        """Some requests come to an end, well or not."""
        for _ in range(self.chance.choice((1, 1, 3, 8))):
            calls = [each for each in self.server.calls if each not in self._late]
            if calls:
                self._answer_one(self.chance.choice(calls))

    def _answer_one(self, call: Call) -> None:
        if call.carried_out or not call.is_awaited:
            self._finish(call)
            return
        (fate,) = self.chance.choices(FATES, list(self.kind.fates.values()))
        trouble = 5 * self._trouble * (1.0 if call.is_bind else self.kind.other_trouble)
        if self.chance.random() >= trouble:
            fate = "ok"
        if call.is_bind:
            self.counts[f"bindings {fate}"] += 1
        elif fate != "ok":
            self.counts["other writes with faults"] += 1
        getattr(self, f"_{fate.replace(',', '').replace(' ', '_')}")(call)

    def _ok(self, call: Call) -> None:
        self.server.carry_out(call)
        self.server.reply(call)

    def _ok_answered_late(self, call: Call) -> None:
        self.server.carry_out(call)

    def _answer_lost(self, call: Call) -> None:
        self.server.carry_out(call)
        self.server.reply(call, Unreachable("the connection broke", may_have_arrived=True))

    def _request_lost(self, call: Call) -> None:
        self._never(call)
        self.server.reply(call, Unreachable("the connection broke", self.chance.randrange(2) == 0))

    def _lost_and_late(self, call: Call) -> None:
        """The client hears nothing; the server may do it yet."""
        call.answer.set_exception(Unreachable("the connection broke", may_have_arrived=True))
        self._late.append(call)

    def _never_answered(self, call: Call) -> None:
        """Until the client gives up; the server may do it before."""
        self._late.append(call)

    def _refused(self, call: Call) -> None:
        self._never(call)
        self.server.reply(call, APIError(*self.chance.choice(_REFUSED)))

    def _not_done(self, call: Call) -> None:
        self._never(call)
        self.server.reply(call, APIError(*self.chance.choice(_NOT_ANSWERED)))

    @staticmethod
    def _never(call: Call) -> None:
        call.carried_out, call.result = True, APIError(500, "InternalError", "not carried out")

    def _finish(self, call: Call) -> None:
        """Of a request that was carried out, or whose client has given it up."""
        self._decide(call)
        self.server.reply(call)

    def _decide(self, call: Call) -> None:
        """A request that was not carried out so far is now, or never."""
        if call.carried_out:
            return
        if self.chance.randrange(2):
            self.counts["requests carried out late"] += 1
            self.server.carry_out(call)
        else:
            self._never(call)

    def _finish_late(self) -> None:
        """Some of what was to be late comes to its end before its time is up."""
        for call in list(self._late):
            if self.chance.randrange(30) == 0:
                self._late.remove(call)
                if call.is_awaited:
                    self.server.carry_out(call)
                else:
                    self._finish(call)

    def _end_overdue(self) -> None:
        """Of requests whose time is up, no process hears anything any more."""
        now_s = self.loop.time()
        for call in [each for each in self.server.calls if each.deadline_s <= now_s]:
            self._decide(call)
            self.server.calls.remove(call)
            if call in self._late:
                self._late.remove(call)

    def _answer_leases(self) -> None:
        """Mostly at once: a leader that is late with its Lease is one no longer."""
        trouble = self._trouble * self.kind.lease_trouble
        while True:
            calls = [each for each in self.server.calls if each.request.path.startswith(LEASES_ROOT)]
            calls = [each for each in calls if self._is_calm or self.chance.random() >= trouble]
            if not calls:
                return
            for call in calls:
                if call.carried_out or call in self._late:
                    return
                self._ok(call)
            self.loop.run_ready()

    def _pass_time(self) -> None:
        self._pass(self.chance.choice(self.kind.times_s))
        self._finish_late()

    def _pass(self, seconds: float) -> None:
        """The time of a request is up before any process does at that moment what it does."""
        until_s = self.loop.time() + seconds
        while True:
            next_s = min([until_s, *(each.deadline_s for each in self.server.calls)])
            is_timer_due = self.loop.pass_time(next_s - self.loop.time())
            self._end_overdue()
            if is_timer_due:
                self._go_on()
            elif self.loop.time() >= until_s:
                return

    # rest

    def _rest(self, *, is_long: bool) -> None:
        """Nothing goes wrong any more, and all that is left to do is done."""
        self.counts["long rests" if is_long else "rests"] += 1
        self._is_calm = True
        self._late.clear()
        self._former.clear()
        while len(self.serving) < self._most_replicas:
            self._start()
        length_s = _LONG_S if is_long else _SHORT_S
        end_s = self.loop.time() + _MOST_REST_S
        quiet_s = self.loop.time()
        version = -1
        while self.loop.time() < quiet_s + length_s:
            if self.loop.time() > end_s:
                raise Violation(f"the cluster does not come to rest: {self._unrest()}")
            self._settle()
            if self._version() != version or self.leader is None or not self._are_following():
                version, quiet_s = self._version(), self.loop.time()
            if self.loop.pass_time(3.0):
                self._go_on()
        self._check(are_told=is_long)
        self._is_calm = False

    def _settle(self) -> None:
        """Until there is nothing to do at this moment."""
        server = self.server
        is_busy = True
        while is_busy:
            self._go_on()
            is_busy = bool(server.calls)
            for call in list(server.calls):
                if call.carried_out or not call.is_awaited:
                    self._finish(call)
                else:
                    self._ok(call)
            version = server.version
            if version != self._calmed:
                self.world.calm()
                self._calmed = version
            is_busy |= server.version != version
            for watch in list(server.watches):
                if not watch.is_over:
                    is_busy |= bool(server.tell(watch, 1000))

    def _version(self) -> int:
        """Of the newest pod."""
        log = self.server.collection(PODS).log
        return log[-1].version if log else self.server.collection(PODS).compacted

    def _are_following(self) -> bool:
        alive = [each.sender for each in self.alive]
        watches = [each for each in self.server.watches if not each.is_over and each.sender in alive]
        return len(watches) == sum(len(each.view.informers) for each in self.alive)

    def _unrest(self) -> str:
        return f"leader {self.leader and self.leader.name}, {len(self.server.watches)} watches"

    def _check(self, *, are_told: bool) -> None:
        truth, leader = Truth(self.server), self.leader
        assert leader is not None
        for replica in self.alive:
            check_replica(truth, replica)
        check_pods(truth, leader, are_told=are_told)
        self.counts["pods that waited at a rest"] += len(truth.waiting)
