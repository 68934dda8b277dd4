"""``python -m tests.koord_scheduler.simulation``: STEPS steps from SEED on, on every CPU; LIFE=n runs one life again.

Prints what was met, and last how many steps broke a rule: none, or the run fails with the way to the first.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.koord_scheduler.simulation.life import STEPS_OF_A_LIFE, Life
from tests.koord_scheduler.simulation.soak import Result, lives, outcome, quiet

_PORTION_STEPS = 10 * STEPS_OF_A_LIFE


def main() -> int:
    if "PYTHONHASHSEED" not in os.environ:  # the order of sets is a part of what happens
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.koord_scheduler.simulation"],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if "LIFE" in os.environ:
        return _again(int(os.environ["LIFE"]))
    steps, seed = int(float(os.environ.get("STEPS", "100000"))), int(os.environ.get("SEED", "1"))
    began = time.monotonic()
    total = Result()
    portions = [
        (seed * 1_000_000 + number, min(_PORTION_STEPS, steps - number * _PORTION_STEPS))
        for number in range(-(-steps // _PORTION_STEPS))
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for result in pool.map(lives, *zip(*portions, strict=True)):
            total.add(result)
            if total.failure:
                pool.shutdown(cancel_futures=True)
                break
            if sys.stdout.isatty():
                print(f"\r{total.steps} steps", end="", flush=True)
    elapsed_s = time.monotonic() - began
    print(f"\nseed {seed}, {elapsed_s:.0f} s, {total.steps / elapsed_s:.0f} steps a second\n{total.told()}")
    for name in total.unmet():
        print(f"never met: {name}")
    print(total.failure or f"soak-scheduler: {total.steps:,} steps of {total.lives} lives in {elapsed_s:.0f} s, "
          f"{total.summary()}: 0 violations")  # fmt: skip
    return 1 if total.failure or total.unmet() else 0


def _again(number: int) -> int:
    with quiet():
        failure = outcome(Life(number, Counter()))
    print(failure or f"life {number}: no rule broken")
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
