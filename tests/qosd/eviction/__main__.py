"""``python -m tests.qosd.eviction``: STEPS node steps from SEED on, on every CPU; LIFE=n runs one life again.

Prints what was met, and last how many steps broke a rule: none, or the run fails with the way to the first.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from random import Random

from tests.qosd.eviction.life import Life
from tests.qosd.eviction.soak import Result, lives, outcome

_PORTION_STEPS = 15_000


def main() -> int:
    if "LIFE" in os.environ:
        return _again(int(os.environ["LIFE"]))
    steps, seed = int(float(os.environ.get("STEPS", "30000"))), int(os.environ.get("SEED", "1"))
    began = time.monotonic()
    total = Result()
    portions = [
        (seed * 1_000_000 + number, min(_PORTION_STEPS, steps - number * _PORTION_STEPS))
        for number in range(-(-steps // _PORTION_STEPS))
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for result in pool.map(lives, *zip(*portions, strict=True)):
            total.steps += result.steps
            total.counts += result.counts
            total.failure = total.failure or result.failure
            if total.failure:
                pool.shutdown(cancel_futures=True)
                break
            if sys.stdout.isatty():
                print(f"\r{total.steps} steps", end="", flush=True)
    elapsed_s = time.monotonic() - began
    print(f"\nseed {seed}, {elapsed_s:.0f} s, {total.steps / elapsed_s:.0f} steps a second\n{total.told()}")
    for name in total.unmet():
        print(f"never met: {name}")
    print(total.failure or f"{total.steps:,} node steps: 0 violations")
    return 1 if total.failure or total.unmet() else 0


def _again(number: int) -> int:
    life = Life(Random(number), Counter())
    print(outcome(life, number) or f"life {number}: no rule broken")
    return 0


if __name__ == "__main__":
    sys.exit(main())
