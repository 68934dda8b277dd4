"""What can happen next: a method for each kind of step, which does nothing and says False where it is not possible."""

from __future__ import annotations

from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.end import (
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    MAX_FRAME_SIZE,
    PRIORITY,
    End,
    Side,
)
from tests.runtimeproxy.simulation.profile import ALL, HUGE_TABLE_BYTES, Profile
from tests.runtimeproxy.simulation.requests import new_call
from tests.runtimeproxy.simulation.scene import Scene

_WINDOWS = (0, 1, 100, 16_384, 65_535, 70_000, 1 << 20)
_FRAME_BYTES = (16_384, 16_384, 20_000, 1 << 20)


class Steps(Scene):
    # steps of the client

    def client_opens(self) -> bool:
        client = self.client
        if client.left or client.gone or client.goaways or len(client.sides) >= self.profile.most_open:
            return False
        call = new_call(len(self.calls), self.profile, self.dice)
        call.bypassed = self.server.bypass or HUGE_TABLE_BYTES in self.profile.tables
        self.calls.append(call)
        client.open(call, self.dice)
        return True

    def client_sends(self) -> bool:
        side = self._side(self.client)
        if side is None or side.ended:
            return False
        dice = self.dice
        most_bytes = dice.pick((0, 1, 30, 5_000, ALL, ALL, ALL, ALL))
        return self.client.send_more(side, dice, min(most_bytes, self.profile.most_bytes))

    def client_reads(self) -> bool:
        return not self.client.stalled and self.client.read(self.cut())

    def client_credits(self) -> bool:
        return self._credits(self.client)

    def client_resets(self) -> bool:
        side = self._side(self.client)
        if side is None:
            return False
        self.client.reset(side)
        return True

    def client_settings(self) -> bool:
        return self._settings(self.client)

    def client_ping(self) -> bool:
        return self.client.is_here and self.client.send_ping()

    def client_priority(self) -> bool:
        client = self.client
        client.write(PRIORITY, 0, 1 + 2 * self.dice.below(client.next_stream), bytes(5))
        return True

    def client_extension(self) -> bool:
        return self.client.is_here and self.client.send_extension(self.dice.below(self.client.next_stream))

    def client_stalls(self) -> bool:
        self.client.stalled = not self.client.stalled
        return True

    def client_hangs_up(self) -> bool:
        return self.hang_up(self.client)

    # steps of the runtime

    def runtime_reads(self) -> bool:
        return not self.runtime.stalled and self.runtime.read(self.cut())

    def runtime_answers(self) -> bool:
        side = self._side(self.runtime)
        return side is not None and side.peer_ended and self.answer(side)

    def runtime_answers_early(self) -> bool:
        side = self._side(self.runtime)
        return side is not None and self.answer(side)

    def runtime_credits(self) -> bool:
        return self._credits(self.runtime)

    def runtime_widens(self) -> bool:
        side = self._side(self.runtime)
        if side is None or side.peer_ended:
            return False
        self.runtime.widen(side, 1 + self.dice.below(50_000))
        return True

    def runtime_resets(self) -> bool:
        side = self._side(self.runtime)
        if side is None:
            return False
        self.runtime.reset(side, self.dice.pick((0, 2, 8)))
        return True

    def runtime_settings(self) -> bool:
        return self._settings(self.runtime)

    def runtime_ping(self) -> bool:
        return self.runtime.is_here and self.runtime.send_ping()

    def runtime_extension(self) -> bool:
        return self.runtime.is_here and self.runtime.send_extension(0)

    def runtime_stalls(self) -> bool:
        self.runtime.stalled = not self.runtime.stalled
        return True

    def runtime_goaway(self) -> bool:
        if not self.runtime.is_here:
            return False
        self.runtime.leave()
        return True

    def runtime_hangs_up(self) -> bool:
        return self.hang_up(self.runtime)

    # steps of the relay

    def relay_reads_client(self) -> bool:
        return self.connect() or self.near.deliver(self.cut())

    def relay_reads_runtime(self) -> bool:
        return self.far.deliver(self.cut())

    def relay_runs_callback(self) -> bool:
        return self.loop.run_one()

    def timer(self) -> bool:
        return self.loop.fire_timer()

    def verdict(self) -> bool:
        pending = self.interceptor.pending
        if not pending:
            return False
        self.interceptor.settle(self.dice.pick(list(pending.values())))
        return True

    def drain(self) -> bool:
        if self.server.draining:
            return False
        self.server.drain()
        return True

    def bypass(self) -> bool:
        self.server.set_bypass(not self.server.bypass)
        if self.server.bypass:
            for call in self.calls:
                call.bypassed = True
        return True

    def new_plans(self) -> bool:
        self.interceptor.version += 1
        return True

    # shared by both ends

    def _side(self, end: End) -> Side | None:
        return self.dice.pick(list(end.sides.values())) if end.sides and end.is_here else None

    def _credits(self, end: End) -> bool:
        if not end.is_here:
            return False
        if self.dice.one_in(2):
            return end.credit_all()
        side = self._side(end)
        if self.dice.one_in(2) and end.uncredited_bytes:
            part = 1 + self.dice.below(end.uncredited_bytes)
            end.uncredited_bytes -= part
            end.credit_connection(part)
            return True
        if side is None or side.peer_ended or not side.uncredited_bytes:
            return False
        part = 1 + self.dice.below(side.uncredited_bytes)
        side.uncredited_bytes -= part
        end.credit_stream(side, part)
        return True

    def _settings(self, end: End) -> bool:
        if not end.is_here or len(end.announced) > 4:
            return False
        end.send_settings(settings(self.dice, self.profile))
        return True


def settings(dice: Dice, profile: Profile) -> dict[int, int]:
    values = {}
    if dice.one_in(2):
        values[HEADER_TABLE_SIZE] = dice.pick(profile.tables)
    if dice.one_in(2):
        values[INITIAL_WINDOW_SIZE] = dice.pick(_WINDOWS)
    if dice.one_in(3):
        values[MAX_FRAME_SIZE] = dice.pick(_FRAME_BYTES)
    return values
