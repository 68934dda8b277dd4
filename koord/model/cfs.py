"""From milli-CPU to the kernel's CPU bandwidth numbers: shares, quota, and the cgroup v2 weight.

All arithmetic is on integers and exact fractions: a ratio of "1.20" is 6/5, so the quota of a 2-CPU limit is
166667 us on every machine. Sources: node-level behaviour of Kubernetes (shares, quota, KEP-2254 weight) and of
Koordinator (normalization, batch resources).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from koord.model.quantity import MilliCPU

PERIOD_US = 100_000
MAX_PERIOD_US = 1_000_000
MIN_QUOTA_US = 1_000
UNLIMITED = -1
MIN_SHARES = 2
MAX_SHARES = 262_144
SHARES_PER_CPU = 1024
MAX_WEIGHT = 10_000
_RATIO = re.compile(r"[0-9]{1,6}(?:\.[0-9]{0,18})?", re.ASCII)


class RatioError(ValueError):
    """A CPU normalization ratio is not a positive decimal number."""


def shares(request: MilliCPU) -> int:
    """Returns ``cpu.shares`` for a request: 1024 per CPU, within 2..262144."""
    return max(MIN_SHARES, min(MAX_SHARES, request * SHARES_PER_CPU // 1000))


def quota_us(limit: MilliCPU | None, period_us: int = PERIOD_US) -> int:
    """Returns ``cpu.cfs_quota_us`` for a limit: at least 1000 us; no limit (None or not positive) is -1."""
    if limit is None or limit <= 0:
        return UNLIMITED
    return max(MIN_QUOTA_US, limit * period_us // 1000)


def stretch(period_us: int, made_with_us: int) -> int:
    """Returns by how much the kernel has stretched a cgroup that was made with a period of ``made_with_us``: 1, 2, 4,
    8...

    Where the timer of a cgroup comes late again and again, the kernel doubles period, quota and burst together, as long
    as the period stays below a second (``sched_cfs_period_timer``); the CPU that the cgroup may use stays the same.
    Any other period was set by somebody: 1.
    """
    factor, power = divmod(period_us, made_with_us)
    doubled = factor > 0 and not power and factor & (factor - 1) == 0
    return factor if doubled and period_us < MAX_PERIOD_US else 1


def normalize_quota_us(quota: int, ratio: Fraction) -> int:
    """Returns ``ceil(quota / ratio)`` where one CPU of this node does the work of ``ratio`` nominal ones.

    Ratios up to 1 and "no limit" leave the quota alone; the result is at least 1000 us.
    """
    if quota <= 0 or ratio <= 1:
        return quota
    return max(MIN_QUOTA_US, math.ceil(quota / ratio))


def parse_ratio(text: str) -> Fraction:
    """The ratio in annotation ``node.koordinator.sh/cpu-normalization-ratio``, such as "1.20"; exact and positive."""
    match = _RATIO.fullmatch(text)
    ratio = Fraction(text) if match else Fraction(0)
    if ratio <= 0:
        raise RatioError(f"{text[:40]!r} is not a positive decimal ratio such as 1.20")
    return ratio


def weight_linear(cpu_shares: int) -> int:
    """Returns ``cpu.weight`` for ``cpu.shares`` as KEP-2254 maps them: 2..262144 onto 1..10000 in a line."""
    weight = 1 + (cpu_shares - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES)
    return max(1, min(MAX_WEIGHT, weight))
