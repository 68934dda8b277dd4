"""Quotas in the middle of histories: all that is said of a pod agrees, and no pod waits that its quota would let in."""

from __future__ import annotations

import random

import numpy as np
import pytest

from koord.quota import names
from koord.scheduling import obstacles
from koord.scheduling.defaults import default_plugins
from koord.scheduling.framework import Framework, WeightedPlugin
from koord.scheduling.plugin import Event, EventKind
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.podinfo import PodInfo
from koord.scheduling.queue import SchedulingQueue
from koord.scheduling.quotas import is_fixed
from tests.scheduling.clusters import node
from tests.scheduling.quotaobjects import cluster, member, quota

PARENTS = {"a": "p", "b": "p", "p": names.ROOT, "c": names.ROOT}


class History:
    """A cluster of quotas to which random things happen, as a scheduler hears of them."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.state = cluster(nodes=3, cpu="12")
        self.plugin = ElasticQuota(self.draw.random() < 0.8, self.draw.random() < 0.5)
        self.framework = Framework(self.state, (WeightedPlugin(self.plugin), *default_plugins()), seed)
        self.queue = SchedulingQueue(self.state, lambda _: self.framework)
        self.now_s, self.made = 0.0, 0
        for name in PARENTS:
            self.put_quota(name)

    def step(self) -> None:
        draw, step = self.draw, self.draw.random()
        if step < 0.55:
            self.made += 1
            waiting = self.pod(f"w{self.made}")
            self.state.quotas.put_pod(waiting)
            self.queue.note(Event(EventKind.QUOTA))
            self.queue.put(waiting, self.now_s)
        elif step < 0.7:
            self.put_quota(draw.choice(sorted(PARENTS)))
        elif step < 0.75:
            name = f"n{draw.randrange(1, 4)}"
            self.state.put_node(node(name, str(draw.randrange(6, 20)), "512Gi", "1000"))
            row = self.state.table.row(name)
            assert row is not None
            self.queue.note(Event(EventKind.NODE, row))
        elif step < 0.85:
            waiting_uids = sorted(each.pod.uid for each in self.queue)
            if waiting_uids:
                uid = draw.choice(waiting_uids)
                self.queue.delete(uid)
                self.state.quotas.remove_pod(uid)
                self.queue.note(Event(EventKind.QUOTA))
        else:
            self.end_one()

    def end_one(self) -> None:
        uids = sorted(self.state.assumed)
        if not uids:
            return
        uid = self.draw.choice(uids)
        found, where = self.state.pod(uid), self.state.node_of(uid)
        assert where is not None
        self.state.remove_pod(uid)
        self.state.quotas.remove_pod(uid)
        self.queue.note(Event(EventKind.QUOTA))
        row = self.state.table.row(where)
        if row is not None:
            self.queue.note(Event(EventKind.POD_LEFT, row, found))

    def run(self) -> None:
        """Places what can be."""
        self.now_s += 11  # backoffs have ended; pods that wait for long are seldom tried without an event
        while (queued := self.queue.pop(self.now_s)) is not None:
            placement = self.framework.place(queued.pod)
            if placement is None:
                self.queue.park(queued, self.framework.diagnose(queued.pod).plugins, self.now_s)
            else:
                self.state.assume(queued.pod, placement.node)

    def pod(self, name: str) -> PodInfo:
        draw = self.draw
        return member(name, draw.choice(["a", "b", "c", "p", ""]), str(draw.randrange(1, 4)), fixed=draw.random() < 0.2)

    def put_quota(self, name: str) -> None:
        low, high = str(self.draw.randrange(8)), str(self.draw.randrange(4, 30))
        lends = self.draw.choice(["true", "false"])
        self.state.quotas.put(quota(name, low, high, parent=PARENTS[name], allow_lent_resource=lends))
        self.queue.note(Event(EventKind.QUOTA))


@pytest.mark.parametrize("seed", range(15))
def test_all_that_is_said_of_a_pod_agrees(seed: int) -> None:
    history = History(seed)
    state, plugin, decides = history.state, history.plugin, history.framework
    for _ in range(60):
        history.step()
        history.run()
        waiting = history.pod("asked")
        state.quotas.put_pod(waiting)
        assert (plugin.obstacle(state, waiting) is None) is lets_in(history, waiting)
        is_kept_out = bool(plugin.rejections(state, waiting))
        assert (plugin.filter(state, waiting) is not None) is is_kept_out
        assert (plugin.room(state, waiting) == 0) is is_kept_out
        assert plugin.goes_by_pods(state, waiting) is is_kept_out
        feasible = decides.feasible(waiting)
        for row in np.flatnonzero(state.table.exists):
            assert bool(plugin.explain(state, waiting, int(row), feasible).reasons) is is_kept_out
            assert bool(feasible[row]) is decides.fits(waiting, int(row))
        assert (decides.place(waiting) is None) is not feasible.any() or not feasible.any()
        if is_kept_out:
            said = obstacles.of(decides, waiting)
            assert decides.diagnose(waiting).message.endswith(f": {said.found[0].reason}.")
            assert said.found[0].plugin == plugin.name and said.helps
        state.quotas.remove_pod(waiting.uid)


def lets_in(history: History, waiting: PodInfo) -> bool:
    """By runtimes alone, one by one."""
    state, plugin = history.state, history.plugin
    found, forest = state.quotas.of(waiting), state.quotas.forest
    assert found is not None and forest is not None
    cpu = waiting.requests["cpu"]
    minimum = found.spec.minimum.get("cpu")
    if is_fixed(waiting) and minimum is not None and found.counted.fixed_used.get("cpu", 0) + cpu > minimum:
        return False
    for each in found.upward():
        if each.name == names.ROOT or "cpu" not in each.spec.maximum:
            return True
        limit = forest.runtime(each, "cpu") if plugin.limits_by_runtime else each.spec.maximum["cpu"]
        if each.counted.used.get("cpu", 0) + cpu > (limit or 0):
            return False
        if not plugin.checks_parents:
            return True
    return True


@pytest.mark.parametrize("seed", range(30))
def test_no_pod_waits_that_could_be_placed(seed: int) -> None:
    history = History(seed)
    for step in range(80):
        for _ in range(history.draw.randrange(1, 4)):
            history.step()
        history.run()
        for each in history.queue:
            assert history.framework.place(each.pod) is None, (step, each.pod.name, each.rejected_by)
