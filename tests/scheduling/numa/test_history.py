"""Clusters to which random things happen: what is explained is what is decided, and what is held is what pods say."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from koord.model.scheduling.pods import Pod
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.state import ClusterState
from tests.scheduling.numa.numaclusters import NUMAGenerator, put

STEPS = 60


def bound(pod: PodInfo, node: str, plugin: NodeNUMAResource, state: ClusterState) -> PodInfo:
    """The pod as the API server has it, once what the plugin wants is written and it is bound."""
    patch = plugin.pre_bind_patch(state, pod, node)
    annotations = dict(pod.pod.metadata.annotations)
    for key, text in (patch.annotations if patch else {}).items():
        annotations.pop(key, None)
        if text is not None:
            annotations[key] = text
    metadata = msgspec.structs.replace(pod.pod.metadata, annotations=annotations)
    spec = msgspec.structs.replace(pod.pod.spec, node_name=node)
    made: Pod = msgspec.structs.replace(pod.pod, metadata=metadata, spec=spec)
    return PodInfo.of(made)


class NUMAHistory:
    def __init__(self, seed: int) -> None:
        self.generator = NUMAGenerator(seed)
        self.draw = self.generator.draw
        self.state = ClusterState()
        self.plugin = NodeNUMAResource()
        self.nodes = {name: self.generator.put_node(self.state, name) for name in ("n1", "n2", "n3", "n4")}
        self.framework = Framework(self.state, (*default_plugins(), WeightedPlugin(self.plugin)), seed)
        self.assumed: dict[str, tuple[PodInfo, str]] = {}
        self.bound: dict[str, PodInfo] = {}

    def step(self) -> None:
        draw, kind = self.draw, self.draw.random()
        if kind < 0.5:
            pod = self.generator.pod()
            placement = self.framework.place(pod)
            if placement is not None:
                self.state.assume(pod, placement.node)
                self.plugin.reserve(self.state, pod, placement.node)
                self.assumed[pod.uid] = pod, placement.node
        elif kind < 0.7 and self.assumed:
            uid = draw.choice(sorted(self.assumed))
            made = bound(*self.assumed.pop(uid), self.plugin, self.state)
            self.bound[uid] = made
            self.state.put_pod(made)
        elif kind < 0.8 and self.assumed:
            uid = draw.choice(sorted(self.assumed))
            pod, node = self.assumed.pop(uid)
            if draw.random() < 0.5:
                self.plugin.unreserve(self.state, pod, node)
            self.state.forget(uid)
        elif kind < 0.93 and self.bound:
            uid = draw.choice(sorted(self.bound))
            del self.bound[uid]
            self.state.remove_pod(uid)
        elif kind < 0.96:
            name = draw.choice(["n3", "n4"])
            self.nodes[name] = self.generator.put_node(self.state, name)
        elif "n4" in self.nodes:
            del self.nodes["n4"]
            self.state.remove_node("n4")
            self.state.put_topology("n4", None) if draw.random() < 0.5 else None

    def rebuilt(self) -> ClusterState:
        """A state that is made of what the API server has alone, pods first."""
        state = ClusterState()
        for pod in self.bound.values():
            state.put_pod(pod)
        for name, (stored, document) in self.nodes.items():
            put(state, name, stored, **document)
        return state


@pytest.mark.parametrize("seed", range(25))
def test_a_scheduler_that_starts_anew_knows_the_same_and_no_cpu_is_given_twice(seed: int) -> None:
    history = NUMAHistory(seed)
    for _ in range(STEPS):
        history.step()
        state = history.state
        for name in history.nodes:
            taken = 0
            row = state.table.row(name)
            assert row is not None
            view = state.numa.view(row)
            for held in state.numa.held_on(name):
                if name in ("n1", "n2"):  # the others change, under pods that are on them
                    assert not held.allocation.cpus & taken
                    assert not held.allocation.cpus & ~view.settings.unreserved
                taken |= held.allocation.cpus
                requested_milli = held.pod.requests.get("cpu", 0)
                assert 1000 * held.allocation.cpus.bit_count() in (0, requested_milli)
            assert view.use.held == taken
    for uid in tuple(history.assumed):
        history.state.forget(uid)
    rebuilt = history.rebuilt()
    for name in history.nodes:
        now, anew = history.state.table.row(name), rebuilt.table.row(name)
        assert now is not None
        assert anew is not None
        assert history.state.numa.view(now) == rebuilt.numa.view(anew), name
        for column in ("free", "whole", "cores", "held", "threads", "ratio_percent", "bind_policy", "has_topology"):
            assert getattr(history.state.numa.columns, column)[now] == getattr(rebuilt.numa.columns, column)[anew], (
                name,
                column,
            )
    assert history.state.numa.has_special_nodes == rebuilt.numa.has_special_nodes


@pytest.mark.parametrize("seed", range(25))
def test_what_is_explained_is_what_is_decided(seed: int) -> None:
    history = NUMAHistory(seed + 1000)
    seen: set[str] = set()
    for step in range(STEPS):
        history.step()
        state, plugin, pod = history.state, history.plugin, history.generator.pod()
        exists = state.table.exists
        rejections = plugin.rejections(state, pod)
        passed = plugin.filter(state, pod)
        feasible = exists if passed is None else exists & passed
        scores = plugin.score(state, pod, feasible)
        for row in np.flatnonzero(exists).tolist():
            said = plugin.explain(state, pod, row, feasible)
            told = [(each.text, each.is_resolvable) for each in said.reasons]
            expected = [
                (each.reason, bool(np.broadcast_to(each.is_resolvable, exists.shape)[row]))
                for each in rejections
                if each.rows[row]
            ]
            assert told == expected, (step, state.table.name(row))
            seen.update(text for text, _ in told)
            if not told:
                assert said.score == (None if scores is None else scores[row]), (step, state.table.name(row))
                if said.score is not None:
                    assert 0 <= said.score <= 100
        if not plugin.goes_by_pods(state, pod):
            assert not rejections or rejections[0].is_of_pod
    assert seen


@pytest.mark.parametrize("seed", range(12))
def test_a_shared_evaluation_is_as_one_made_from_the_beginning(seed: int) -> None:
    history = NUMAHistory(seed + 2000)
    waiting = [history.generator.pod() for _ in range(6)]
    for step in range(STEPS):
        history.step()
        anew = Framework(history.state, history.framework.plugins, seed + 2000)
        for pod in waiting:
            assert (history.framework.feasible(pod) == anew.feasible(pod)).all(), step
            assert history.framework.place(pod) == anew.place(pod), step


@pytest.mark.parametrize("seed", range(25))
def test_who_is_let_pass_gets_what_it_wants(seed: int) -> None:
    history = NUMAHistory(seed + 3000)
    for _ in range(STEPS):
        history.step()
        pod = history.generator.pod()
        for row in np.flatnonzero(history.framework.feasible(pod)).tolist():
            name = history.state.table.name(row)
            with history.state.transaction() as transaction:
                transaction.assume(pod, name)
                history.plugin.reserve(history.state, pod, name)
