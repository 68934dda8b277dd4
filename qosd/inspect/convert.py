"""From qosd's values to NodeInspect's messages, where several answers need the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from koord.host.files import ROWS, UnknownRow, Value, row
from koord.model.formulas import FORMULA, Inputs
from koord.pb.koord import inspect_pb2 as inspect
from qosd.decide.runner import Decisions, StrategyResult
from qosd.model.snapshot import NodeSnapshot, PodView
from qosd.strategies import formulas
from qosd.tuning.advice import Advice

NOTHING_LACKS: Mapping[str, str] = MappingProxyType({})


def inputs(fed: Inputs) -> list[inspect.Input]:
    """Returns a formula's inputs in their order, without its name."""
    return [_input(name, value) for name, value in fed.items() if name != FORMULA]


def _input(name: str, value: int | str | float | None) -> inspect.Input:
    if value is None:
        return inspect.Input(name=name)
    if isinstance(value, str):
        return inspect.Input(name=name, text=value)
    return inspect.Input(name=name, real=value) if isinstance(value, float) else inspect.Input(name=name, number=value)


def formula(fed: Inputs) -> tuple[str, str]:
    """Returns name and text of the formula in ``fed``; ("", "") if it names none."""
    name = str(fed.get(FORMULA, ""))
    known = formulas().get(name)
    return name, known.text if known else ""


def unit_of(name: str) -> str:
    """Returns the unit of a row's values; "" for a row of another version."""
    try:
        return (ROWS.get(name) or row(name)).unit
    except UnknownRow:
        return ""


def strategies(decisions: Decisions, lacking: Mapping[str, str] = NOTHING_LACKS) -> list[inspect.Strategy]:
    """Returns every strategy's result. ``lacking``: by name, what an enabled strategy may not do."""
    return [strategy(result, lacking.get(result.name, "")) for result in decisions.results]


def strategy(result: StrategyResult, lacks: str = "") -> inspect.Strategy:
    return inspect.Strategy(
        name=result.name,
        stage=result.stage.name.lower(),
        state=result.state,
        sentence=result.sentence,
        opinions=len(result.opinions),
        errors=result.errors,
        lacks=lacks,
    )


def labels(snapshot: NodeSnapshot) -> dict[str, tuple[str, str]]:
    """Returns (pod, container) by cgroup path; container is "" for the pod's own, its name, or "(sandbox)"."""
    found: dict[str, tuple[str, str]] = {}
    for pod in snapshot.pods:
        if pod.cgroup:
            found[pod.cgroup] = (pod.key, "")
        for container in pod.containers:
            if container.cgroup:
                found[container.cgroup] = (pod.key, "(sandbox)" if container.is_sandbox else container.name)
    return found


def pod(pod: PodView, advice: Iterable[Advice] = ()) -> inspect.Pod:
    """Returns the pod without its containers' values."""
    return inspect.Pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        sandbox_id=pod.sandbox_id,
        state=pod.state,
        qos_class=pod.qos,
        qos_source=pod.qos_source,
        priority_class=pod.priority_class,
        sub_priority=pod.sub_priority,
        cgroup_parent=pod.cgroup,
        containers=[
            inspect.Container(name=each.name, id=each.id, state=each.state, cgroup_path=each.cgroup)
            for each in pod.containers
            if not each.is_sandbox
        ],
        problems=pod.problems,
        advice=[inspect.Advice(**each._asdict()) for each in advice],
    )


def text(value: Value | None) -> str | None:
    """Returns a kernel value as a field of a message that may be absent."""
    return None if value is None else str(value)
