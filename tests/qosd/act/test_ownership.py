"""Who is heard on a file."""

from __future__ import annotations

import pytest

from koord.host.files import ROWS, Target
from koord.model.qos import KubeQoS
from qosd.act.ownership import OWNERS, hear
from qosd.decide.decision import Cap, Keep, Opinion, Scale, Stage, Strategy
from qosd.decide.frame import State, Turn
from qosd.strategies.hostapps import HostApplications
from qosd.strategies.normalization import PodNormalization
from qosd.strategies.reconciler import HookReconciler
from tests.qosd.act.rig import CPUS, QUOTA, SHARES, wants
from tests.qosd.act.rig import OWNERS as TABLE


def turn(name: str, stage: Stage, *opinions: tuple[Target, Opinion], decided: bool = True) -> Turn:
    return Turn(name, stage, State.ACTIVE, "", dict(opinions), decided=decided)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (turn("nobody", Stage.SPEC, (QUOTA, wants(5000))), "not in the table"),
        (turn("burst", Stage.SPEC, (QUOTA, wants(5000))), "speaks at stage BURST"),
        (turn("burst", Stage.BURST, (SHARES, Scale(2.0, ""))), "not among its files"),
    ],
)
def test_outside_the_table_is_refused(one: Turn, why: str) -> None:
    target = next(iter(one.opinions))
    hearing = hear(target, [one], TABLE)
    assert hearing.spoken == ()
    assert [who for who, _ in hearing.refused] == [one.name]
    assert why in hearing.refused[0][1]


def test_stages_are_heard_in_their_order() -> None:
    turns = [turn("suppress", Stage.SUPPRESSION, (QUOTA, Cap(1, ""))), turn("hooks", Stage.SPEC, (QUOTA, wants(5000)))]
    assert [one.who for one in hear(QUOTA, turns, TABLE).spoken] == ["hooks", "suppress"]


@pytest.mark.parametrize(("before", "owner"), [((), "hooks"), (((Stage.SPEC, "hosts"),), "hosts")])
def test_the_first_owner_stays(before: tuple[tuple[Stage, str], ...], owner: str) -> None:
    turns = [turn("hooks", Stage.SPEC, (CPUS, wants("0"))), turn("hosts", Stage.SPEC, (CPUS, wants("1")))]
    hearing = hear(CPUS, turns, TABLE, before)
    assert [one.who for one in hearing.spoken] == [owner]
    assert [who for who, _ in hearing.refused] == [{"hooks": "hosts", "hosts": "hooks"}[owner]]


def test_who_has_not_decided_yet_keeps_what_an_earlier_run_left() -> None:
    waiting = turn("hooks", Stage.SPEC, decided=False)
    assert hear(CPUS, [waiting], TABLE).spoken == ()
    assert [type(one.opinion) for one in hear(CPUS, [waiting], TABLE, (), True).spoken] == [Keep]
    other = turn("hosts", Stage.SPEC, (CPUS, wants("1")))
    assert [one.who for one in hear(CPUS, [waiting, other], TABLE, (), True).spoken] == ["hosts"]


def test_the_table_knows_every_strategy_and_row() -> None:
    tiers = {KubeQoS.GUARANTEED: "/kubepods"}
    strategies: list[Strategy] = [HookReconciler(), HostApplications(tiers), PodNormalization()]
    assert {one.name: one.stage for one in strategies} == {name: line.stage for name, line in OWNERS.items()}
    assert all(name in ROWS for line in OWNERS.values() for name in line.rows)
