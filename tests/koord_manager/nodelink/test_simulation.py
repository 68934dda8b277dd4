"""A cluster's NodeLink over a day, on a clock of its own: certificates for all, renewals, managers that go."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.nodelink import STALE_S
from tests.koord_manager.nodelink.simulation.fleet import Budget
from tests.koord_manager.nodelink.simulation.freshness import Freshness
from tests.koord_manager.nodelink.simulation.story import LEAST_SHARE, Story, quiet
from tests.kube import virtualtime

pytestmark = pytest.mark.exhaustive

NODES = 100
"""With the part of the budgets that they are of 10,000: the larger cluster goes through the same in the same time."""
UNTIL_S = {
    "every agent starts at once": 300,
    "a day, in which certificates are renewed": 1,
    "the manager ends and another one leads": 90,
    "the manager is killed": 90,
    "a fifth of the agents are upgraded at once": 90,
    "every agent restarts, and the manager later": 330,
}
"""By chapter: until nearly all nodes are fresh."""


@pytest.fixture(autouse=True)
def quietly() -> Iterator[None]:
    with quiet():
        yield


def told(budget: Budget) -> Story:
    async def run() -> Story:
        story = Story(NODES, budget)
        await story.tell()
        return story

    return virtualtime.run(run())


def test_nearly_all_nodes_are_fresh_nearly_always() -> None:
    story = told(Budget())
    rows = [row.text() for row in story.rows]
    assert story.share >= LEAST_SHARE, rows
    assert story.fleet.server.longest_page == 16, "the manager asks for no more at a time"
    assert {row.name: row.until_s <= UNTIL_S[row.name] for row in story.rows} == dict.fromkeys(UNTIL_S, True), rows


@pytest.mark.parametrize(
    ("budget", "late"),
    [
        (Budget(signer_qps=20.0, signer_burst=40), {"every agent starts at once"}),
        (Budget(handshakes_per_s=40.0), {"the manager ends and another one leads", "the manager is killed"}),
    ],
    ids=["certificates", "handshakes"],
)
def test_what_is_too_slow_shows(budget: Budget, late: set[str]) -> None:
    assert {row.name for row in told(budget).rows if row.until_s > UNTIL_S[row.name]} >= late


SPELLS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4)
"""Each so many seconds of silence and then of reports."""


@given(st.lists(SPELLS, min_size=1, max_size=4), st.integers(0, 60), st.integers(1, 60))
def test_the_share_is_that_of_each_second(nodes: list[list[tuple[int, int]]], begin_s: int, seconds: int) -> None:
    figures, fresh = Freshness(len(nodes)), [set[int]() for _ in nodes]
    for number, spells in enumerate(nodes):
        now_s = 0
        for silent_s, telling_s in spells:
            now_s += silent_s
            figures.told(number, now_s)
            figures.silent(number, now_s + telling_s)
            fresh[number].update(range(now_s, now_s + telling_s + round(STALE_S)))
            now_s += telling_s
    moments = range(begin_s, begin_s + seconds)
    counts = [sum(moment in each for each in fresh) for moment in moments]
    assert figures.share(begin_s, begin_s + seconds) == pytest.approx(sum(counts) / (seconds * len(nodes)))
    reached = next((index for index, count in enumerate(counts) if count >= len(nodes)), math.inf)
    assert figures.reached_s(1.0, begin_s, begin_s + seconds) == reached


def test_a_manager_that_goes_takes_what_it_knew_along() -> None:
    figures = Freshness(1)
    figures.told(0, 10.0)
    figures.forget(20.0)
    figures.told(0, 25.0)
    assert figures.share(0.0, 40.0) == pytest.approx(25 / 40)
