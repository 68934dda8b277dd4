"""Best-effort work of three kinds. ``python -m bench.protection.storms KIND COUNT COUNTER``.

    cpu       processes that never rest
    memory    processes that copy 64 MiB blocks, which fills caches and memory bandwidth
    forks     processes that fork, and wait for children that do a little and end

Each counts the rounds that it has done in its word of the file ``COUNTER``, which is shared memory: how much work was
done, whatever the CPU time says. They end with their parent.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from bench.protection.service import end_with_parent, work

WORD = struct.Struct("@Q")
BLOCK_BYTES = 64 << 20
ROUND = 20_000
"""Iterations of a round, about a millisecond."""


def spin() -> None:
    work(ROUND)


def copying() -> Callable[[], None]:
    source, target = bytearray(BLOCK_BYTES), bytearray(BLOCK_BYTES)

    def copy() -> None:
        target[:] = source

    return copy


def fork() -> None:
    child = os.fork()
    if not child:
        work(ROUND // 4)
        os._exit(0)
    os.waitpid(child, 0)


KINDS: dict[str, Callable[[], Callable[[], None]]] = {
    "cpu": lambda: spin,
    "memory": copying,
    "forks": lambda: fork,
}


def main() -> None:
    kind, count, counter = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    end_with_parent()
    place = count - 1
    for number in range(count - 1):
        if not os.fork():
            end_with_parent()
            place = number
            break
    with counter.open("r+b") as file, mmap.mmap(file.fileno(), WORD.size * count) as words:
        act, rounds = KINDS[kind](), 0
        while True:
            act()
            rounds += 1
            WORD.pack_into(words, WORD.size * place, rounds)


if __name__ == "__main__":
    main()
