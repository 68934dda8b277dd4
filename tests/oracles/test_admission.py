"""The oracle of admission against what Koordinator does with single pods, and what its cases cover."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.oracles.admission import Refused, admitted, extended_resource_spec, mutated, translated
from tests.oracles.objects import (
    BATCH,
    CPU,
    LABEL_CLASS,
    LABEL_QOS,
    MEMORY,
    MID,
    Document,
    effective_class,
    quantity,
    raw_class,
)
from tests.oracles.pods import (
    NAMESPACE_LABELS,
    PROFILES,
    SPECS,
    Case,
    cases,
    equal,
    pod,
    profile,
    resources,
    spec,
    updates,
)

TWO_CPUS = SPECS["whole CPUs"]


def new(
    qos: str | None = None, priority: int | None = None, pod_spec: Document = TWO_CPUS, labels: Document | None = None
) -> Document:
    made = pod(qos, None, priority, pod_spec)
    made["metadata"]["labels"].update(labels or {})
    return made


def requests_of(pod: Document) -> Document:
    found: Document = pod["spec"]["containers"][0]["resources"]["requests"]
    return found


@pytest.mark.parametrize(
    ("pod", "raw_class_name", "effective_class_name"),
    [
        pytest.param(new("LS", 9000), "koord-prod", "koord-prod", id="LS of prod"),
        pytest.param(new(pod_spec=spec({})), None, "koord-batch", id="best effort without a number"),
        pytest.param(new(None, 5500, labels={LABEL_CLASS: "foo"}), None, "koord-prod", id="an unknown label is none"),
        pytest.param(new("BE", 5500, labels={LABEL_CLASS: "foo"}), None, "koord-batch", id="an unknown label of BE"),
        pytest.param(new(None, 6000), None, "koord-prod", id="a number between bands"),
        pytest.param(new(None, 2_000_000_000), None, "koord-prod", id="a system number"),
        pytest.param(new("BE", 3500), "koord-free", "koord-free", id="BE of free"),
    ],
)
def test_classes(pod: Document, raw_class_name: str | None, effective_class_name: str) -> None:
    assert (raw_class(pod), effective_class(pod)) == (raw_class_name, effective_class_name)


@pytest.mark.parametrize(
    ("pod", "is_admitted"),  # None: without RequireEqualCPULimits
    [
        pytest.param(new("BE", 3500), True, id="BE of free"),
        pytest.param(new("LSR", 9000, SPECS["1500m"]), False, id="LSR with half a CPU"),
        pytest.param(new("LSE", 5500), True, id="LSE of batch"),
        pytest.param(new(None, 5500, SPECS["batch"]), False, id="batch resources without class BE"),
        pytest.param(new("LS", 5500, SPECS["batch in an init container"]), False, id="in an init container"),
        pytest.param(new("BE", 5500, SPECS["batch"]), True, id="batch resources of BE"),
        pytest.param(new(None, 5500, SPECS["batch 0"]), True, id="no batch requested"),
        pytest.param(new("BE", 9000), False, id="BE prod"),
        pytest.param(new("BE"), False, id="BE none"),
        pytest.param(new("BE", 5500), True, id="BE batch"),
        pytest.param(new("LSR", 7500), False, id="LSR mid"),
        pytest.param(new("LSR"), False, id="LSR none"),
        pytest.param(new("LSR", 9000), True, id="LSR prod"),
        pytest.param(new("LSR", 9000, SPECS["CPU 0"]), False, id="LSR without CPUs"),
        pytest.param(new("LSE", 9000, SPECS["CPU alone"]), True, id="LSE, no memory"),
        pytest.param(new("LSE", 9000, SPECS["limit alone"]), True, id="LSE, the limit is the request"),
        pytest.param(new("LSE", 9000, SPECS["request alone"]), None, id="LSE without limit"),
        pytest.param(new("LSR", 9000, SPECS["request below limit"]), None, id="LSR, request below limit"),
        pytest.param(new("LSR", 9000, SPECS["two halves"]), True, id="the pod's CPUs are whole"),
        pytest.param(new("LSR", 9000, SPECS["overhead"]), False, id="overhead counts"),
        pytest.param(new("LSR", 9000, SPECS["one of two limited"]), None, id="LSR, one without limit"),
        pytest.param(new("LSR", 9000, SPECS["init limited above its request"]), None, id="LSR, init above"),
        pytest.param(new("LSR", 9000, SPECS["one of two without CPU"]), True, id="LSR, one without CPU"),
        pytest.param(new("LSR", 9000, SPECS["the pod alone"]), True, id="LSR, amounts of the pod"),
        pytest.param(new("LSR", 9000, SPECS["the pod without limit"]), None, id="LSR, no limit of the pod"),
        pytest.param(new("LS", 9000, SPECS["1500m"]), True, id="LS 1500m"),
        pytest.param(new("lsr", None, SPECS["1500m"]), True, id="an unknown class is none"),
    ],
)
def test_new_pods(pod: Document, is_admitted: bool | None) -> None:
    assert admitted(pod) == (is_admitted is not False)
    assert admitted(pod, equal_limits=True) == bool(is_admitted)


SUB = "koordinator.sh/priority"


@pytest.mark.parametrize(
    ("old", "pod", "is_admitted"),
    [
        pytest.param(new("LS", 9000), new("LS", 9000), True, id="nothing changes"),
        pytest.param(new("LS", 9000), new("BE", 5000), False, id="LS becomes BE"),
        pytest.param(new("LS", 9000), new("LS", 9500), True, id="in the band"),
        pytest.param(new("LS", 9000), new("LS", 7500), False, id="out of the band"),
        pytest.param(new("LS", 9000), new(None, 9000), False, id="QoS removed"),
        pytest.param(new(None, 9000), new("LS", 9000), False, id="QoS added"),
        pytest.param(new("LS", 9000), new("LS", 9000, labels={SUB: "1"}), False, id="sub-priority added"),
        pytest.param(
            new("LS", 9000, labels={SUB: "2"}), new("LS", 9000, labels={SUB: "1"}), False, id="sub-priority changed"
        ),
        pytest.param(new(None, 9000), new("lsr", 9000), True, id="none becomes unknown"),
        pytest.param(new("BE", 9000), new("BE", 9500), True, id="of what was let in before"),
        pytest.param(new("LSR", 9000), new("LSR", 9000, SPECS["1500m"]), False, id="resized to less than whole"),
    ],
)
def test_updates(old: Document, pod: Document, is_admitted: bool) -> None:
    assert admitted(pod, old) == is_admitted


BATCH_CPU, BATCH_MEMORY = BATCH.values()


@pytest.mark.parametrize(
    ("cpu", "amount"), [("500m", 500), ("1.5", 1500), ("0.0001", 1), ("2", 2000), (2, 2000), ("100u", 1)]
)
def test_translation_of_cpu(cpu: Any, amount: int) -> None:
    made = translated(new("BE", 5000, spec(equal(cpu))))
    assert requests_of(made) == {BATCH_CPU: amount, BATCH_MEMORY: "4Gi"}


@pytest.mark.parametrize(
    ("qos", "priority", "names"),
    [
        pytest.param("LS", 9000, {CPU: CPU, MEMORY: MEMORY}, id="prod"),
        pytest.param("BE", 3500, {CPU: CPU, MEMORY: MEMORY}, id="free"),
        pytest.param("LS", 7000, MID, id="mid"),
        pytest.param("BE", 5000, BATCH, id="batch"),
        pytest.param("BE", None, BATCH, id="BE alone"),
        pytest.param(None, None, {CPU: CPU, MEMORY: MEMORY}, id="none"),
    ],
)
def test_translation_by_class(qos: str | None, priority: int | None, names: dict[str, str]) -> None:
    assert set(requests_of(translated(new(qos, priority)))) == set(names.values())


def test_translation_of_limits_alone_and_not_of_overhead() -> None:
    made = translated(new("BE", 5000, spec(resources(None, {CPU: 1}), overhead={CPU: "250m", MEMORY: "1Mi"})))
    assert made["spec"]["containers"][0]["resources"] == {"requests": {BATCH_CPU: 1000}, "limits": {BATCH_CPU: 1000}}
    assert made["spec"]["overhead"] == {CPU: "250m", MEMORY: "1Mi"}


def test_translation_of_amounts_of_the_pod() -> None:
    made = translated(new("BE", 5000, SPECS["the pod as its containers"]))
    assert "resources" not in made["spec"]
    assert requests_of(made) == {BATCH_CPU: 1000, BATCH_MEMORY: "4Gi"}


@pytest.mark.parametrize("name", ["the pod alone", "the pod more than its containers"])
def test_amounts_of_the_pod_that_cannot_be_translated(name: str) -> None:
    with pytest.raises(Refused):
        translated(new("BE", 5000, SPECS[name]))


def test_the_quick_starts_pod() -> None:
    made = mutated(new(), PROFILES["quick start"], NAMESPACE_LABELS)
    labels, amounts = made["metadata"]["labels"], {BATCH_CPU: 2000, BATCH_MEMORY: "4Gi"}
    assert (labels[LABEL_QOS], labels["koordinator.sh/mutated"], labels[SUB]) == ("BE", "true", "1000")
    assert {
        key: made["spec"][key] for key in ("priorityClassName", "priority", "preemptionPolicy", "schedulerName")
    } == {
        "priorityClassName": "koord-batch",
        "priority": 5000,
        "preemptionPolicy": "PreemptLowerPriority",
        "schedulerName": "koord-scheduler",
    }
    assert made["spec"]["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}
    read = {name: quantity(amount) for name, amount in amounts.items()}
    assert extended_resource_spec(made) == {"containers": {"c0": {"limits": read, "requests": read}}}


@pytest.mark.parametrize(
    ("profiles", "labels"),
    [
        pytest.param(
            [profile("b", labels={"t": "2"}), profile("a", labels={"t": "1"})], {"t": "2"}, id="later profile"
        ),
        pytest.param([profile("a", labels={"t": "1"}, probability="0%")], {"t": None}, id="probability 0 %"),
        pytest.param([profile("a", labels={"v": "1"}, labelSuffixes={"v": "-x"})], {"v": "1-x"}, id="a suffix"),
        pytest.param([profile("a", labelSuffixes={"v": "-x"})], {"v": None}, id="a suffix of a missing label"),
        pytest.param([profile("a", labels={"v": "1"}, labelKeysMapping={"v": "w"})], {"w": "1"}, id="mapped"),
        pytest.param([profile("a", labelKeysMapping={"v": "w"})], {"w": None}, id="nothing to map"),
        pytest.param([profile("a", patch={"metadata": {"labels": {"p": "1"}}})], {"p": "1"}, id="patched"),
    ],
)
def test_what_profiles_inject(profiles: list[Document], labels: Document) -> None:
    made = mutated(new("LS", 9000), profiles, NAMESPACE_LABELS)
    assert {key: made["metadata"]["labels"].get(key) for key in labels} == labels


def test_a21_resources_are_translated_though_the_profile_is_never_applied() -> None:
    made = mutated(new("BE", 5000), PROFILES["never"], NAMESPACE_LABELS)
    assert set(requests_of(made)) == {BATCH_CPU, BATCH_MEMORY}


@pytest.mark.parametrize("profiles", [[], PROFILES["of another namespace"]], ids=["none", "not matching"])
def test_without_a_profile_a_pod_stays_as_it_is(profiles: list[Document]) -> None:
    assert mutated(new("BE", 5000), profiles, NAMESPACE_LABELS) == new("BE", 5000)


def test_the_cases_are_many_and_differ() -> None:
    names = [case.name for case in cases()]
    assert len(names) == len(set(names)) >= 10_000


def is_created(case: Case) -> bool:
    try:
        return admitted(mutated(case.pod, case.profiles, NAMESPACE_LABELS))
    except Refused:
        return False


def test_both_verdicts_are_met_with_every_profile_and_in_updates() -> None:
    met = Counter((case.name.partition("profile ")[2], is_created(case)) for case in cases())
    met.update(("update", admitted(case.pod, case.old)) for case in updates())
    assert set(met) == {(name, verdict) for name in (*PROFILES, "update") for verdict in (True, False)}
