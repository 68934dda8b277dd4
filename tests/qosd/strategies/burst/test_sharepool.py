"""Has the node CPU for bursts?"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from qosd.model.snapshot import PodView
from qosd.strategies.burst.sharepool import PoolState, share_pool
from tests.qosd.podviews import EXITED, NOT_READY, view
from tests.qosd.strategies.burst.scenes import Node

IDLE, COOLING, OVERLOAD, UNKNOWN = PoolState.IDLE, PoolState.COOLING, PoolState.OVERLOAD, PoolState.UNKNOWN


def pod(name: str, qos: str, request_milli: int | None = None, **said: Any) -> PodView:
    return structs.replace(view(name, qos, **said), cpu_request_milli=request_milli)


LSR, BE, LS = pod("lsr", "LSR", 8000), pod("be", "BE"), pod("ls", "LS", 4000)
UPSTREAMS = {"lsr": 4.0, "be": 4.0, "ls": 9.0}


def test_upstreams_example() -> None:
    """32 CPUs, 8 of them requested by LSR; 18 used, 4 of them by LSR and 4 by BE: 10 / 24."""
    found = share_pool(Node((LSR, BE, LS), node_used=18.0, pods_used=UPSTREAMS).snapshot(), 50)
    assert (found.state, found.threshold_percent) == (IDLE, 50)
    assert found.used_percent == pytest.approx(41.6667, abs=1e-4)


@pytest.mark.parametrize(
    ("node_used", "threshold", "state"),
    [
        (15.99, 50, COOLING),
        (16.0, 50, OVERLOAD),
        (32.0, 50, OVERLOAD),
        (14.4, 50, COOLING),
        (14.39, 50, IDLE),
        (0.0, 50, IDLE),
        (0.0, 0, OVERLOAD),
        (31.99, 100, COOLING),
        (32.0, 100, OVERLOAD),
        (None, 50, UNKNOWN),
    ],
)
def test_states(node_used: float | None, threshold: int, state: PoolState) -> None:
    assert share_pool(Node((), node_used=node_used).snapshot(), threshold).state is state


@pytest.mark.parametrize(
    ("pods", "pods_used", "percent"),
    [
        ((pod("p", "LS", 8000),), {"p": 8.0}, 50.0),
        ((pod("p", "", 8000),), {"p": 8.0}, 50.0),
        ((pod("p", "SYSTEM", 8000),), {"p": 8.0}, 50.0),
        ((pod("p", "", tier="BestEffort"),), {"p": 8.0}, 50.0),
        ((pod("p", "BE", tier="BestEffort"),), {"p": 8.0}, 25.0),
        ((pod("p", "BE", 8000),), {}, 50.0),
        ((pod("p", "LSE", 16_000),), {"p": 8.0}, 50.0),
        ((pod("p", "LSR", cpus="0-15"),), {"p": 8.0}, 50.0),
        ((pod("p", "LSR", 16_000, state=NOT_READY, containers=[("main", EXITED)]),), {}, 50.0),
        ((pod("p", "LSE", 32_000),), {"p": 8.0}, 100.0),
        ((pod("p", "BE"),), {"p": 20.0}, 0.0),
    ],
    ids=[
        "LS stays in", "unlabelled too", "SYSTEM too", "BestEffort without a label too", "BE does not",
        "one that nobody has measured does", "LSE takes its requests with it", "or its CPUs, where nobody tells",
        "not if it has ended", "nothing is shared", "never below 0",
    ],
)  # fmt: skip
def test_whose_use_counts(pods: tuple[PodView, ...], pods_used: dict[str, float], percent: float) -> None:
    found = share_pool(Node(pods, node_used=16.0, pods_used=pods_used).snapshot(), 50)
    assert found.used_percent == percent
