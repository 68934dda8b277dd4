"""One policy measured: turns alone and with each storm, alternating, and its answer to a step of load."""

from __future__ import annotations

import random
import time
from contextlib import nullcontext
from dataclasses import dataclass, field

from bench.protection import steps
from bench.protection.policies import Policy, reversals
from bench.protection.steps import Steps
from bench.protection.turns import BASELINES, KINDS, SETTLE_S, Bench, Turn
from integration.node.daemon import Daemon


@dataclass
class Measured:
    """The turns of one policy, by storm or baseline and in the order of the rounds; ``steps``: of its answer to a step
    of load."""

    policy: Policy
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    reversals_per_minute: float | None = None
    steps: Steps | None = None
    said: str = ""


def measured(policy: Policy, bench: Bench, rounds: int, seconds: float) -> Measured:
    """``rounds`` rounds of a turn alone by each baseline, and then one of each storm in an order drawn by lot."""
    found, chance = Measured(policy), random.Random(policy.name)
    with policy.applied(bench.node) as daemon:
        if daemon is not None:
            bench.node.blow(steps.STORM)
            bench.client.ask(policy.learns_s)
        since_tick, began = _tick(daemon), time.monotonic()
        for _ in range(rounds):
            for name in (*BASELINES, *chance.sample(KINDS, len(KINDS))):
                storm = name if name in KINDS else None
                with nullcontext() if storm else BASELINES[name]():
                    bench.node.blow(storm)
                    time.sleep(SETTLE_S)
                    found.turns.setdefault(name, []).append(bench.turn(storm, seconds))
        if daemon is not None:
            minutes = (time.monotonic() - began) / 60
            found.reversals_per_minute = reversals(daemon.journal(), since_tick) / minutes
            found.steps = steps.measured(bench.node, bench.client)
            found.said = _sentence(daemon)
    return found


def _tick(daemon: Daemon | None) -> int:
    return max((row.tick for row in daemon.journal()), default=0) if daemon is not None else 0


def _sentence(daemon: Daemon) -> str:
    strategies = daemon.koordctl("node").get("strategies", ())
    return next((each["sentence"] for each in strategies if each["name"] == "cpuSuppress"), "")
