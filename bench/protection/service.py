"""A latency-sensitive service: workers that share one UDP socket, each request a fixed amount of work.

``python -m bench.protection.service PORT WORKERS ROUNDS``. A datagram is answered with itself once the work is
done. The work is a loop of ``ROUNDS`` rounds, so that a request costs the same CPU whatever else runs. Every worker
is a process of one thread: the interpreter's lock takes no part. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
FIFO_PRIORITY = 50
"""Of clients."""


def work(rounds: int) -> None:
    for _ in range(rounds):
        pass


def iterations(milliseconds: float) -> int:
    """How many rounds of work take so long here, by the fastest of some tries."""
    count, tries = 20_000, []
    for _ in range(50):
        began = time.perf_counter()
        work(count)
        tries.append(time.perf_counter() - began)
    return round(count * milliseconds / 1000 / min(tries))


def serve(requests: socket.socket, rounds: int) -> None:
    """Answer for ever."""
    gc.disable()
    while True:
        datagram, client = requests.recvfrom(64)
        work(rounds)
        requests.sendto(datagram, client)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wake_exactly() -> None:
    """The kernel else joins timers that end within 50 µs."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)


def main() -> None:
    port, workers, rounds = map(int, sys.argv[1:4])
    end_with_parent()
    requests = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    requests.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    requests.bind(("127.0.0.1", port))
    for _ in range(workers - 1):
        if not os.fork():
            end_with_parent()
            break
    serve(requests, rounds)


if __name__ == "__main__":
    main()
