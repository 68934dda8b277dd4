"""The client of the service: requests at intended instants, whether or not earlier ones are answered.

``python -m bench.protection.load PORT`` reads from its input lines of ``RATE SECONDS SEED`` and answers each with one
line of JSON: latencies in µs, counted from the intended instant, how late it sent each, how many it sent, and its own
CPU time. It runs under SCHED_FIFO, collects no garbage and sleeps between events, so that it is no part of what it
measures.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import socket
import struct
import sys
import time

from bench.protection.service import FIFO_PRIORITY, end_with_parent, wake_exactly

WAIT_S = 2.0
"""For answers that are still out at the end of a turn."""
_REQUEST = struct.Struct("!QQ")


class Turn:
    """One turn of load: its latencies, by request, as far as they are answered."""

    def __init__(self, number: int, instants_ns: list[int]) -> None:
        self.number, self.instants_ns = number, instants_ns
        self.latencies_us: list[float] = []
        self.late_us: list[float] = []

    def run(self, link: socket.socket) -> None:
        began_ns, sent, answered = time.monotonic_ns(), 0, 0
        until_ns = began_ns + self.instants_ns[-1] + int(WAIT_S * 1e9)
        while answered < len(self.instants_ns):
            now_ns = time.monotonic_ns()
            due_ns = began_ns + self.instants_ns[sent] if sent < len(self.instants_ns) else until_ns
            if sent < len(self.instants_ns) and now_ns >= due_ns:
                link.send(_REQUEST.pack(self.number, sent))
                self.late_us.append((time.monotonic_ns() - due_ns) / 1000)
                sent += 1
                continue
            if now_ns >= until_ns:
                return
            if select.select([link], [], [], max(0.0, (due_ns - now_ns) / 1e9))[0]:
                answered += self._hear(link, began_ns)

    def _hear(self, link: socket.socket, began_ns: int) -> int:
        """The answers that are there; those of earlier turns count for nothing."""
        answers = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                turn, request = _REQUEST.unpack(link.recv(64))
                if turn == self.number:
                    answers += 1
                    self.latencies_us.append((time.monotonic_ns() - began_ns - self.instants_ns[request]) / 1000)
        return answers


def instants_ns(rate_per_s: float, seconds: float, seed: int) -> list[int]:
    """A Poisson process, drawn beforehand."""
    chance, at_s, found = random.Random(seed), 0.0, list[int]()
    while (at_s := at_s + chance.expovariate(rate_per_s)) < seconds:
        found.append(int(at_s * 1e9))
    return found


def main() -> None:
    end_with_parent()
    wake_exactly()
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.connect(("127.0.0.1", int(sys.argv[1])))
    link.setblocking(False)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    gc.disable()
    for number, line in enumerate(sys.stdin):
        rate_per_s, seconds, seed = line.split()
        turn = Turn(number, instants_ns(float(rate_per_s), float(seconds), int(seed)))
        began_s = time.process_time()
        turn.run(link)
        answer = {
            "latencies_us": turn.latencies_us,
            "late_us": turn.late_us,
            "sent": len(turn.instants_ns),
            "cpu_s": time.process_time() - began_s,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        gc.collect()


if __name__ == "__main__":
    main()
