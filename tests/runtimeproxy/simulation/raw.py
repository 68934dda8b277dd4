"""A life in which the client does not speak HTTP/2: what either end sends arrives as it was sent, and nothing else."""

from __future__ import annotations

from tests.runtimeproxy.simulation.call import check
from tests.runtimeproxy.simulation.dice import Dice
from tests.runtimeproxy.simulation.life import Life
from tests.runtimeproxy.simulation.transport import SimTransport

_GREETINGS = (b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/1.1\r\n", b"P", b"PRI", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r")
_STEPS = ("sends", "sends", "reads", "reads", "relay_reads", "relay_reads", "relay_runs_callback", "connect")
_PIECES = (b"x", b"hello\r\n", bytes(9), b"\0\0\4\4\0\0\0\0\0", bytes(range(256)) * 40)


class RawLife(Life):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sent = {self.near: bytearray(), self.far: bytearray()}
        self.seen = {self.near: bytearray(), self.far: bytearray()}
        self.table: tuple[str, ...] = (*_STEPS, *(("drain", "timer") if self.dice.one_in(2) else ()))
        self.length = 60
        self.counts["raw"] += 1

    def start(self) -> None:
        self.far.connect(self.connection.answers)
        self.near.incoming.clear()
        self._send(self.near, self.dice.pick(_GREETINGS))

    def _send(self, transport: SimTransport, data: bytes) -> None:
        transport.incoming += data
        self.sent[transport] += data

    def sends(self) -> bool:
        transport = self.dice.pick((self.near, self.far))
        if transport is self.far and not self.seen[self.far]:
            return False  # the runtime speaks when it is spoken to
        self._send(transport, self.dice.pick(_PIECES))
        return True

    def reads(self) -> bool:
        transport = self.dice.pick((self.near, self.far))
        data = transport.take(self.cut())
        self.seen[transport] += data
        return bool(data)

    def relay_reads(self) -> bool:
        return self.connected and self.dice.pick((self.near, self.far)).deliver(self.cut())

    def end(self) -> None:
        """All arrives, and when one end goes, both do."""
        self._send(self.near, b"the end")  # by now it cannot become a preface
        self.deliver_raw()
        if not self.connection.pair.raw:
            return  # it said nothing for the second that a drain waits
        check(self.seen[self.far] == self.sent[self.near], "the runtime has seen other bytes than the client sent")
        check(self.seen[self.near] == self.sent[self.far], "the client has seen other bytes than the runtime sent")
        self.dice.pick((self.near, self.far)).hang_up()
        self.deliver_raw()
        while self.loop.fire_timer():
            self.deliver_raw()
        check(self.connection.pair.ended.done(), "an end has gone, and the connection does not end")
        check(not self.server.metrics.connections, "the server remembers a connection that is over")

    def deliver_raw(self) -> None:
        moved = True
        while moved:
            moved = self.connect() or self.near.deliver(1 << 20) or self.far.deliver(1 << 20) or self.loop.run_one()
            for transport in self.seen:
                data = transport.take(1 << 20)
                self.seen[transport] += data
                moved = moved or bool(data)


def life_of(seed: int) -> Life:
    """The one life that belongs to this seed."""
    return RawLife(seed) if Dice(seed).one_in(32) else Life(seed)
