"""``python -m tests.runtimeproxy.simulation``: STEPS steps from SEED on, on every CPU; LIFE=n runs one life again.

Prints what happened, and last how many steps broke a rule: none, or the run fails with the way to the first.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from tests.runtimeproxy.simulation.life import guarded
from tests.runtimeproxy.simulation.raw import life_of
from tests.runtimeproxy.simulation.shrink import Failure
from tests.runtimeproxy.simulation.soak import Result, lives, quiet

_PORTION_STEPS = 100_000


def main() -> int:
    if "LIFE" in os.environ:
        return _again(int(os.environ["LIFE"]))
    steps, seed = int(float(os.environ.get("STEPS", "100000"))), int(os.environ.get("SEED", "1"))
    began = time.monotonic()
    total, failure = Result(), ""
    portions = [(seed * 1_000_000 + number, _PORTION_STEPS) for number in range(-(-steps // _PORTION_STEPS))]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for result, wrong in pool.map(_portion, portions):
            total.steps += result.steps
            total.counts += Counter(result.counts)
            if wrong:
                failure = wrong
                pool.shutdown(cancel_futures=True)
                break
            if sys.stdout.isatty():
                print(f"\r{total.steps} steps", end="", flush=True)
    elapsed_s = time.monotonic() - began
    print(f"\nseed {seed}, {elapsed_s:.0f} s, {total.steps / elapsed_s:.0f} steps a second\n{total.told()}")
    print(failure or f"{total.steps} steps, no rule broken")
    return 1 if failure else 0


def _portion(portion: tuple[int, int]) -> tuple[Result, str]:
    """A part of the run in a process of its own: its result, and what went wrong as text."""
    result = lives(*portion)
    with quiet():
        wrong = result.failure.told() if result.failure else ""
    result.failure = None
    return result, wrong


def _again(number: int) -> int:
    with quiet():
        life = life_of(number)
        error = guarded(life, life.run)
        print(Failure(number, error, life.trace).told() if error else f"life {number}: no rule broken")
    return 1 if error else 0


if __name__ == "__main__":
    sys.exit(main())
