"""Every plugin's vectors against the oracle, on generated clusters, in the middle of histories."""

from __future__ import annotations

import random

import numpy as np
import pytest

from koord.model.scheduling.pods import Node
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.clusters import Generator
from tests.scheduling.oracle import Oracle

NAMESPACES = {"default": {"team": "a"}, "other": {"team": "b"}}
STEPS = 120


class History:
    """A cluster to which random things happen, told to a state and to an oracle."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.generator = Generator(seed)
        self.state = ClusterState()
        self.oracle = Oracle({}, {}, NAMESPACES)
        self.nodes: dict[str, Node] = {}
        self.placed: dict[str, tuple[PodInfo, str]] = {}
        for name, labels in NAMESPACES.items():
            self.state.put_namespace(name, labels)
        for index in range(self.draw.randrange(3, 9)):
            self.put_node(f"n{index}")
        self.framework = Framework(self.state, default_plugins(), seed)

    def put_node(self, name: str) -> None:
        self.nodes[name] = self.generator.node(name)
        assert not self.state.put_node(self.nodes[name])

    def step(self) -> PodInfo:
        """Lets something happen, and returns a pod that waits."""
        draw = self.draw
        kind = draw.random()
        if kind < 0.5:
            node = draw.choice(["gone", *self.nodes])
            pod = self.generator.pod(node)
            self.placed[pod.uid] = pod, node
            self.state.put_pod(pod)
        elif kind < 0.65 and self.placed:
            uid = draw.choice(sorted(self.placed))
            del self.placed[uid]
            self.state.remove_pod(uid)
        elif kind < 0.7:
            self.put_node(draw.choice([*self.nodes, f"n{len(self.nodes)}", "gone"]))
        elif kind < 0.73 and len(self.nodes) > 2:
            name = draw.choice(sorted(self.nodes))
            del self.nodes[name]
            self.state.remove_node(name)
        pod = self.generator.pod()
        if kind >= 0.73 and (placement := self.framework.place(pod)) is not None:
            self.state.assume(pod, placement.node)
            self.placed[pod.uid] = pod, placement.node
            pod = self.generator.pod()
        self.oracle = Oracle(self.nodes, self.placed, NAMESPACES)
        return pod


@pytest.mark.parametrize("seed", range(12))
def test_reasons_and_scores(seed: int) -> None:
    history = History(seed)
    state, framework = history.state, history.framework
    for step in range(STEPS):
        pod = history.step()
        expected = {name: history.oracle.reasons(pod, name) for name in history.nodes}
        feasible = sorted(name for name, reasons in expected.items() if not reasons)
        where = framework.feasible(pod)
        assert sorted(filter(None, (state.table.name(int(row)) for row in np.flatnonzero(where)))) == feasible, step
        scores = history.oracle.scores(pod, feasible) if feasible else {}
        for name in history.nodes:
            said = framework.explain(pod, name)
            told = {
                plugin: [each.text for each in one.reasons] for plugin, one in said.by_plugin.items() if one.reasons
            }
            assert told == expected[name], (step, name)
            if not told:
                told_scores = {plugin: one.score for plugin, one in said.by_plugin.items() if one.score is not None}
                assert told_scores == {plugin: by_node[name] for plugin, by_node in scores.items()}, (step, name)
        placement = framework.place(pod)
        assert (placement is not None) == bool(feasible)
        if placement is not None and len(feasible) > 1:
            totals = {name: framework.explain(pod, name).total for name in feasible}
            assert totals[placement.node] == max(total for total in totals.values() if total is not None)
