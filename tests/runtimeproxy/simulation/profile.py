"""What the steps of one run are drawn from. Each run leaves some kinds of step out, so that the others meet often."""

from __future__ import annotations

from dataclasses import dataclass

from tests.runtimeproxy.simulation.dice import Dice

COMMON = {  # step → weight
    "client_opens": 6,
    "client_sends": 14,
    "client_reads": 8,
    "client_credits": 4,
    "relay_reads_client": 14,
    "relay_reads_runtime": 12,
    "relay_runs_callback": 10,
    "runtime_reads": 10,
    "runtime_answers": 12,
    "runtime_credits": 5,
    "verdict": 4,
}
OCCASIONAL = {
    "client_resets": 2,
    "client_settings": 2,
    "client_ping": 1,
    "client_priority": 1,
    "client_extension": 1,
    "client_stalls": 1,
    "runtime_resets": 2,
    "runtime_settings": 2,
    "runtime_ping": 1,
    "runtime_extension": 1,
    "runtime_stalls": 1,
    "runtime_answers_early": 2,
    "runtime_widens": 2,
    "rest": 1,
    "pause": 1,
    "bypass": 1,
    "new_plans": 1,
}
ONCE = ("drain", "runtime_goaway", "client_hangs_up", "runtime_hangs_up", "timer")

ALL = 1 << 30
HUGE_TABLE_BYTES = 2 << 20  # more than the relay follows: the connection is blind from there on
_TABLE_BYTES = (0, 64, 200, 1_024, 4_096, 8_192, 65_536)


@dataclass(frozen=True, slots=True)
class Profile:
    """``table``: steps, each as often as its weight says. Sizes in bytes."""

    table: tuple[str, ...]
    steps: int
    most_open: int
    bodies: tuple[int, ...]
    socket_bytes: int
    high_water_bytes: int
    budget_bytes: int
    crumbs: bool  # most reads bring a few bytes only
    uneditable: bool
    padded: bool
    most_bytes: int  # in one DATA frame of the client
    tables: tuple[int, ...]  # that both ends may announce for header blocks
    settings_first: bool  # both ends announce settings of their own at once


def profile(dice: Dice) -> Profile:
    weights = dict(COMMON)
    weights |= {step: weight for step, weight in OCCASIONAL.items() if not dice.one_in(3)}
    if dice.one_in(2):
        weights[dice.pick(ONCE)] = 1
        weights["timer"] = 1
    for step in COMMON:
        if dice.one_in(8):
            weights[step] = 1 + dice.below(2)  # one that comes late
    steps = [step for step, weight in weights.items() for _ in range(weight * 2)]
    small, large = (4, 5, 60, 400, 3_000), (4, 400, 9_000, 40_000, 70_000, 140_000)
    return Profile(
        table=tuple(steps),
        steps=dice.pick((60, 200, 400, 800)),
        most_open=dice.pick((1, 3, 8, 30)),
        bodies=large if dice.one_in(4) else small,
        socket_bytes=dice.pick((1 << 30, 1 << 30, 200_000, 10_000)),
        high_water_bytes=dice.pick((1 << 18, 20_000, 500)),
        budget_bytes=dice.pick((1 << 27, 1 << 27, 1 << 27, 80_000)),
        crumbs=dice.one_in(5),
        uneditable=dice.one_in(3),
        padded=dice.one_in(3),
        most_bytes=150 if dice.one_in(8) else ALL,
        tables=(HUGE_TABLE_BYTES,) if dice.one_in(16) else _TABLE_BYTES,
        settings_first=not dice.one_in(3),
    )
