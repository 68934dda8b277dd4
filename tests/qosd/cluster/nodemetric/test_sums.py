"""The parts of a report have together what the node used, whatever its last minute was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from koord.model.nodemetric import NodeMetricStatus
from koord.overcommit.amounts import CPUMemory
from tests.qosd.cluster.history import History, Use, pod
from tests.qosd.cluster.nodemetric.reports import APP, INSIDE, amount, node_of, reported

uses = st.builds(Use, st.integers(1, 64).map(lambda n: n / 16), st.integers(0, 64).map(lambda n: n / 8))


@st.composite
def histories(draw: st.DrawFn, unreadable: bool) -> tuple[History, int]:
    """A minute of a node, and how many parts of it are reported; all pods live throughout."""
    names = [f"p{number}" for number in range(draw(st.integers(0, 4)))]
    hidden = [f"u{number}" for number in range(draw(st.integers(1, 3)))] if unreadable else []
    pods = [pod(name) for name in names] + [pod(name, cores=draw(st.integers(0, 4)), gib=2) for name in hidden]
    history = History(*pods, apps=[APP, INSIDE])
    moments = draw(st.lists(st.tuples(*[uses] * (4 + len(pods))), min_size=1, max_size=4))
    for second in range(60):
        system, orphans, outside, inside, *of_pods = moments[second % len(moments)]
        history.tick(
            system,
            orphans,
            apps={"nginx": outside},
            apps_inside={"agent": inside},
            unreadable=dict(zip(hidden, of_pods[len(names) :], strict=True)),
            **dict(zip(names, of_pods[: len(names)], strict=True)),
        )
    return history, len(names) + 3


def parts_of(status: NodeMetricStatus) -> CPUMemory:
    assert status.node_metric is not None
    total = amount(status.node_metric.system_usage)
    for pod_usage in status.pods_metric:
        total += amount(pod_usage.pod_usage)
    for application in status.host_application_metric:
        total += amount(application.usage)
    return total


@settings(max_examples=50)
@given(histories(unreadable=False))
def test_all_use_is_somebodys_and_nobodys_twice(drawn: tuple[History, int]) -> None:
    history, count = drawn
    status = reported(history, aggregate_duration_seconds=60).status
    assert status.node_metric is not None
    rest = amount(status.node_metric.node_usage) - parts_of(status)
    rounding_bytes = 4096 * count  # the rings keep 24 bits
    assert -1 <= rest.cpu_milli <= count and -rounding_bytes <= rest.memory_bytes <= rounding_bytes


@settings(max_examples=50)
@given(histories(unreadable=True))
def test_with_the_requests_of_pods_that_are_not_measured_all_use_is_covered(drawn: tuple[History, int]) -> None:
    history, count = drawn
    status = reported(history, aggregate_duration_seconds=60).status
    assert status.node_metric is not None
    covered = parts_of(status)
    for each in history.pods:
        covered += CPUMemory(each.cpu_request_milli or 0, each.memory_request_bytes or 0)
    rest = amount(status.node_metric.node_usage) - covered
    assert rest.cpu_milli <= count and rest.memory_bytes <= 4096 * count


@given(st.lists(st.tuples(uses, uses), min_size=1, max_size=3))
def test_numa_nodes_have_together_what_the_system_has(moments: list[tuple[Use, Use]]) -> None:
    history = History()
    for second in range(60):
        system, orphans = moments[second % len(moments)]
        history.tick(system, orphans)
    usage = node_of(history, aggregate_duration_seconds=60)
    assert [amount(each.system_usage) for each in usage.numa_usages] == [amount(usage.system_usage)]
