"""A latency-sensitive service: workers that share one UDP socket, each request a fixed amount of work.

``python -m bench.protection.service PORT WORKERS ITERATIONS``. A datagram is answered with itself once the work is
done. The work is a loop of ``ITERATIONS`` rounds, so that a request costs the same CPU whatever else runs. Every worker
is a process of one thread: the interpreter's lock takes no part. It ends with its parent.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29


def work(iterations: int) -> None:
    for _ in range(iterations):
        pass


def serve(requests: socket.socket, iterations: int) -> None:
    """Answer for ever."""
    gc.disable()
    while True:
        datagram, client = requests.recvfrom(64)
        work(iterations)
        requests.sendto(datagram, client)


def end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wake_exactly() -> None:
    """The kernel else joins timers that end within 50 µs."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)


def main() -> None:
    port, workers, iterations = map(int, sys.argv[1:4])
    end_with_parent()
    requests = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    requests.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    requests.bind(("127.0.0.1", port))
    for _ in range(workers - 1):
        if not os.fork():
            end_with_parent()
            break
    serve(requests, iterations)


if __name__ == "__main__":
    main()
