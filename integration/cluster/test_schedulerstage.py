"""What must hold of placements is told from what must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from integration.cluster import objects, schedulerstage
from integration.cluster.middleman import Call
from integration.cluster.schedulerstage import PODS


def call(path: str, body: dict[str, Any], came_s: float, status: int = 201, sent: bool = True) -> Call:
    """One whose answer comes after a second."""
    return Call(
        "a", "POST", path, json.dumps(body).encode(), came_s, came_s * sent, (came_s + 1) * bool(status), status
    )


def binding(node: str, came_s: float = 1.0, status: int = 201, sent: bool = True) -> Call:
    return call(f"{PODS}/p/binding", {"metadata": {"uid": "u"}, "target": {"name": node}}, came_s, status, sent)


def telling(came_s: float) -> Call:
    return call(schedulerstage.EVENTS, TOLD, came_s)


TOLD = {"reason": "Scheduled", "involvedObject": {"uid": "u"}}


@pytest.mark.parametrize(
    ("node", "calls", "events", "gone_s", "found"),
    [
        ("n", [binding("n"), telling(3.0)], 1, {}, []),
        ("n", [binding("m", status=409), binding("n"), telling(3.0)], 1, {"m": 2.0}, []),
        ("n", [binding("n"), binding("n", 2.0, 0, sent=False)], 1, {"n": 1.5}, []),
        ("", [], 0, {}, ["p has no node"]),
        ("n", [binding("n"), binding("n", 3.0)], 1, {}, ["p was bound 2 times"]),
        ("n", [], 1, {}, ["p was bound 0 times", "p is on n, and was bound to []"]),
        ("n", [binding("n", status=0)], 1, {}, ["p was bound 0 times"]),
        ("n", [binding("m")], 1, {}, ["p is on n, and was bound to ['m']"]),
        ("n", [binding("n")], 0, {}, ["p has 0 Events that it is scheduled"]),
        ("n", [binding("n")], 2, {}, ["p has 2 Events that it is scheduled"]),
        ("n", [binding("n"), telling(1.5)], 1, {}, ["p has an Event from before it was bound"]),
        ("n", [binding("n")], 1, {"n": 0.5}, [f"{PODS}/p/binding names n, gone 0.500 s before"]),
    ],
)
def test_what_is_wrong(node: str, calls: list[Call], events: int, gone_s: dict[str, float], found: list[str]) -> None:
    pod = {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node}}
    assert schedulerstage.wrongs([pod], [TOLD] * events, calls, gone_s) == found


def test_what_is_too_much() -> None:
    nodes = [objects.node("n", {"cpu": "1", "memory": "64Mi", "pods": "2"})]
    pods = [objects.pod(f"p{index}", {"cpu": "400m", "memory": "32Mi"}, nodeName="n") for index in range(3)]
    assert schedulerstage.overcommitted(nodes, pods[:2]) == []
    assert [each.partition(" has ")[2].split()[:3] for each in schedulerstage.overcommitted(nodes, pods)] == [
        ["1", "of", "cpu,"],
        ["64Mi", "of", "memory,"],
        ["room", "for", "2"],
    ]
