"""Each pod that is measured is reported once, by its name."""

from __future__ import annotations

import msgspec

from koord.model.qos import QoSClass
from qosd.model.metric import Scope
from qosd.sense.usage import USAGE
from tests.qosd.cluster.history import GIB, History, Use, pod, row
from tests.qosd.cluster.nodemetric.reports import amount, gib, reported

POD = USAGE[Scope.POD]


def test_a_pod_without_both_samples_is_left_out() -> None:
    history = History(pod("web"), pod("new"))
    for _ in range(10):
        history.tick(Use(1, 1), web=Use(1, 1))
    history.tick(Use(1, 1), web=Use(1, 1), new=Use(float("nan"), 1))
    assert [each.name for each in reported(history).status.pods_metric] == ["web"]


def test_a_pod_that_has_ended_is_gone_with_its_cgroup() -> None:
    history = History(pod("web"), pod("done"))
    for _ in range(10):
        history.tick(web=Use(1, 1), done=Use(1, 1))
    history.tick(web=Use(1, 1))
    assert [each.name for each in reported(history).status.pods_metric] == ["web"]


def test_two_pods_of_one_name_are_one_figure() -> None:
    old, new = pod("db-0", state="SANDBOX_NOTREADY"), msgspec.structs.replace(pod("db-0"), uid="2", qos=QoSClass.LSR)
    history = History(old, msgspec.structs.replace(new, cgroup="/kubepods/burstable/podnew"))
    history.tick(Use(1, 1))
    rows = {
        each.cgroup: row(POD, cpu_usage_cores=cores, memory_usage_bytes=cores * GIB)
        for each, cores in zip(history.pods, (1.0, 2.0), strict=True)
    }
    history.store.put(POD.panel, history.at_ns, rows)
    (found,) = reported(history).status.pods_metric
    assert (found.name, found.qos, amount(found.pod_usage)) == ("db-0", "LSR", gib(3000, 3))


def test_pods_are_in_the_order_of_their_names() -> None:
    names = [("b", "x"), ("a", "z"), ("a", "y")]
    history = History(*(pod(name, namespace) for namespace, name in names))
    history.tick(x=Use(1, 1), y=Use(1, 1), z=Use(1, 1))
    found = [(each.namespace, each.name) for each in reported(history).status.pods_metric]
    assert found == [("a", "y"), ("a", "z"), ("b", "x")]
