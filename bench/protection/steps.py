"""How fast a policy answers to a step of the service's load: best-effort's CPU time, a tenth of a second at a time.

up      the load doubles: how long until best-effort work has settled at what it keeps from there on
down    it is halved again: how long until best-effort work has 90 % of what the service leaves
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass

from bench.protection.node import Node
from bench.protection.turns import CPUS
from bench.protection.workloads import Client

STEADY_S = 12.0
"""A policy has found its place by then, and a step's answer has ended."""
_SAMPLE_S = 0.1
_SETTLED_PERCENT = 10
_REGAINED_PERCENT = 90
_SMOOTHED = 10
_TAIL, _DEVIATIONS = 40, 3
STORM = "cpu"


@dataclass(frozen=True, slots=True)
class Steps:
    """In seconds; None: not within ``STEADY_S``."""

    shrinks_s: float | None
    grows_s: float | None


def measured(node: Node, client: Client) -> Steps | None:
    """Both steps, under the storm of busy processes; None if the client has no rate that could step."""
    rate_per_s = client.rate_per_s
    if rate_per_s is None:
        return None
    node.blow(STORM)
    client.ask(STEADY_S)
    client.rate_per_s = 2 * rate_per_s
    up = _sampled(node, client)
    client.rate_per_s = rate_per_s
    down = _sampled(node, client)
    node.blow(None)
    return Steps(_settled_s([storm for storm, _ in up]), _regained_s(down))


def _sampled(node: Node, client: Client) -> list[tuple[float, float]]:
    """(CPUs of the storm, CPUs that the service leaves) while the client goes on for ``STEADY_S``."""
    asking = threading.Thread(target=client.ask, args=(STEADY_S,))
    jobs = [cgroup for (_, kind), cgroup in node.jobs.items() if kind == STORM]
    asking.start()
    samples, before = [], (time.monotonic(), sum(job.cpu_ns() for job in jobs), node.web.cpu_ns())
    while asking.is_alive():
        time.sleep(_SAMPLE_S)
        now = (time.monotonic(), sum(job.cpu_ns() for job in jobs), node.web.cpu_ns())
        passed_ns = (now[0] - before[0]) * 1e9
        samples.append(((now[1] - before[1]) / passed_ns, CPUS - (now[2] - before[2]) / passed_ns))
        before = now
    asking.join()
    return samples


def _smoothed(values: list[float]) -> list[float]:
    return [sum(values[max(0, at - _SMOOTHED + 1) : at + 1]) / min(at + 1, _SMOOTHED) for at in range(len(values))]


def _settled_s(storm: list[float]) -> float | None:
    """When it last differed from its final value by more than a tenth of that, or by more than its final variation."""
    smooth = _smoothed(storm)
    tail = smooth[-_TAIL:]
    end = sum(tail) / len(tail)
    allowed = max(end * _SETTLED_PERCENT / 100, _DEVIATIONS * statistics.pstdev(tail))
    late = [at for at, value in enumerate(smooth[:-_TAIL]) if abs(value - end) > allowed]
    settled = late[-1] + 1 if late else 0
    return settled * _SAMPLE_S if settled < len(smooth) - _TAIL else None


def _regained_s(samples: list[tuple[float, float]]) -> float | None:
    storm, rest = (_smoothed(list(values)) for values in zip(*samples, strict=True))
    for at, (has, left) in enumerate(zip(storm, rest, strict=True)):
        if has * 100 >= left * _REGAINED_PERCENT:
            return at * _SAMPLE_S
    return None
