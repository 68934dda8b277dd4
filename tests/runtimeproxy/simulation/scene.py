"""The relay between two strict ends, and what must hold when nothing moves and when the connection is over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from runtimeproxy.relay.server import RelayServer
from tests.runtimeproxy.simulation import books
from tests.runtimeproxy.simulation.call import HOLD, Call, check
from tests.runtimeproxy.simulation.client import Client
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.end import INITIAL_WINDOW_SIZE, End, Side
from tests.runtimeproxy.simulation.interceptor import SimInterceptor
from tests.runtimeproxy.simulation.profile import ALL, HUGE_TABLE_BYTES, Profile
from tests.runtimeproxy.simulation.runtime import Runtime
from tests.runtimeproxy.simulation.transport import SimTransport
from tests.support.simloop import SimLoop

_OPEN_WINDOW_BYTES = 16_384  # a smaller one is opened before anything is said about progress


class Scene:
    def __init__(self, profile: Profile, dice: Dice) -> None:
        self.profile, self.dice = profile, dice
        self.steps = 0
        self.counts: Counter[str] = Counter()
        self.loop = SimLoop()  # type: ignore[abstract]  # of what a loop has it has what the relay uses
        self.calls: list[Call] = []
        self.interceptor = SimInterceptor(self.loop, self.calls, dice)
        self.server = RelayServer(self.loop, "", self.interceptor, held_budget_bytes=profile.budget_bytes)
        self.connection = self.server._join()
        sizes = profile.socket_bytes, profile.high_water_bytes
        self.near, self.far = SimTransport(self.loop, *sizes), SimTransport(self.loop, *sizes)
        self.client = Client(self.near)
        self.runtime = Runtime(self.far, self.client.calls)
        self.runtime.lacks_blocks = lambda: books.has_dropped_blocks(self.connection)
        self.connected = False
        self._settling = False

    def connect(self) -> bool:
        """The runtime is connected first; then the client's bytes are read."""
        if self.connected:
            return False
        self.connected = True
        self.near.connect(self.connection.requests)
        self.connection.going_away.expect_preface()
        return True

    def hang_up(self, end: End) -> bool:
        """One end goes, and reads nothing more."""
        if not end.is_here:
            return False
        end.left = True
        end.transport.hang_up()
        return True

    def answer(self, side: Side) -> bool:
        """The next part of the runtime's answer; False if there is none, or the windows are shut."""
        dice, runtime = self.dice, self.runtime
        if side.ended:
            return False
        if side.call.answer_head is None:
            if dice.one_in(8):
                runtime.fail_at_once(side, dice)
            else:
                runtime.answer_head(side, dice)
            return True
        return runtime.answer_more(side, dice, dice.pick((1, 30, 5_000, ALL, ALL, ALL)))

    def cut(self) -> int:
        """How many bytes the next read brings at most."""
        dice = self.dice
        kind = dice.below(8)
        if self.profile.crumbs and not self._settling:
            return 1 + dice.below(40) if kind else ALL
        return (1 + dice.below(12)) if kind == 0 else 1 + dice.below(3_000) if kind < 3 else ALL

    # everything that can happen

    def deliver(self) -> None:
        """What was sent is read, by whom it is meant for; nobody sends anything new, nor gives credit."""
        self._until_quiet(self._deliveries())

    def settle(self) -> None:
        """Everything is delivered, credited, sent and answered, until nothing moves."""
        own = (self._client_sends_all, self._runtime_answers_all, self.client.credit_all, self.runtime.credit_all)
        self._open_up()
        self._until_quiet((*self._deliveries(), *own, self._late_answers_pass))
        self._settling = False

    def pause(self) -> bool:
        """Everything is delivered and credited, and nothing new is sent: each stream's window is as at first."""
        self._open_up()
        credit = self.client.credit_all, self.runtime.credit_all
        self._until_quiet((*self._deliveries(), *credit, self._late_answers_pass))
        self._settling = False
        if self.client.is_here and self.runtime.is_here and not self.near.is_closing() and not self.client.goaways:
            for stream, side in self.client.sides.items():
                far = self.runtime.sides.get(stream)
                if not side.ended and far is not None and not far.ended:
                    books.check_stream(self.connection, side)
        return True

    def _open_up(self) -> None:
        self._settling = True
        self.client.stalled = self.runtime.stalled = False
        for end in (self.client, self.runtime):
            if end.announced_window < _OPEN_WINDOW_BYTES and end.is_here:
                end.send_settings({INITIAL_WINDOW_SIZE: 65_535})

    def _deliveries(self) -> tuple[Callable[[], bool], ...]:
        return (
            self.loop.run_one,
            self.connect,
            lambda: self.near.deliver(self.cut()),
            lambda: self.far.deliver(self.cut()),
            lambda: self.client.read(self.cut()),
            lambda: self.runtime.read(self.cut()),
        )

    def _until_quiet(self, moves: tuple[Callable[[], bool], ...]) -> None:
        moved = True
        while moved:
            moved = False
            for move in moves:
                while move():
                    self.steps += 1
                    moved = True

    def _late_answers_pass(self) -> bool:
        """Nothing else moves, and a part of an answer waits for the rest of its message: time passes."""
        waiting = any(answer.frames for answer in self.connection.rewrites.answers.values())
        return waiting and self.loop.fire_timer()

    def _client_sends_all(self) -> bool:
        sides = [side for side in self.client.sides.values() if not side.ended]
        most_bytes = self.profile.most_bytes
        return self.client.is_here and sum(self.client.send_more(side, self.dice, most_bytes) for side in sides) > 0

    def _runtime_answers_all(self) -> bool:
        sides = [side for side in self.runtime.sides.values() if side.peer_ended]
        return self.runtime.is_here and sum(self.answer(side) for side in sides) > 0

    # what must hold

    def rest(self) -> bool:
        """All that can happen without a decision happens; then the decisions, and all that can happen then."""
        self.settle()
        self._check_nobody_waits()
        for question in list(self.interceptor.pending.values()):
            if question.call.number in self.interceptor.pending:
                self._decide(question.call)
                self.settle()
        self._check_finished()
        if self.client.is_here and self.runtime.is_here and not self.near.is_closing():
            books.check_rest(self.connection, self.client, self.runtime)
        return True

    def finish(self) -> None:
        """Rest, and then the connection's end."""
        self.rest()
        silent = not self.connection.pair.started  # for a second, while it was drained
        if self.client.gone and not self.runtime.left and not silent:
            check(not self.client.cut, "the client was cut off in the midst of a call")
        if self.connection.going_away.draining:
            while self.loop.fire_timer():
                self.settle()
            ended = self.connection.pair.ended.done()
            check(ended, "the connection is drained, all calls are over, and it does not end")
        both = self.client.is_here == self.runtime.is_here
        check(both, "one end has gone, and the other is left waiting")
        self.hang_up(self.client)
        self.settle()
        while self.loop.fire_timer():
            self.settle()
        self._check_finished()
        books.check_end(self.server, self.connection, HUGE_TABLE_BYTES in self.profile.tables)
        self._count()

    def _decide(self, call: Call) -> None:
        sides = [side for side in self.client.sides.values() if side.call is call]
        if sides and self.client.is_here and self.dice.one_in(3):
            self.client.reset(sides[0])  # the answer never comes, and the client gives up
        else:
            self.interceptor.settle(self.interceptor.pending[call.number])

    def _check_nobody_waits(self) -> None:
        """Who is not asked about waits for nobody who is."""
        if self.client.is_here and self.runtime.is_here:
            pending = self.interceptor.pending
            stuck = [side for side in self.client.sides.values() if side.call.number not in pending]
            check(not stuck, f"waiting although everything was delivered: {_names(stuck)}")

    def _check_finished(self) -> None:
        if self.client.is_here and self.runtime.is_here:
            check(not self.client.sides, f"not finishing: {_names(list(self.client.sides.values()))}")
        check(not self.interceptor.pending, f"questions {list(self.interceptor.pending)} were never cancelled")

    def _count(self) -> None:
        self.counts["calls"] += len(self.calls)
        self.counts.update(call.outcome or "cut off" for call in self.calls)
        for call in self.calls:
            whole = call.outcome == "answered" and call.arrived_whole
            self.counts["held and answered"] += whole and call.method.treatment == HOLD
        self.counts["asked"] += self.interceptor.asked
        self.counts["edited"] += self.interceptor.edited
        self.counts["rewritten"] += self.interceptor.rewrites
        self.counts["connections"] += 1
        self.counts["blind"] += bool(self.server.metrics.blind_connections)


def _names(sides: list[Side]) -> str:
    told = [(side.call.number, side.call.method.path.decode(), side.sent, len(side.body)) for side in sides]
    return ", ".join(f"call {number} ({path}, sent {sent} of {size})" for number, path, sent, size in told)
