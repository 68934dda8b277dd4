"""Which pods are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from runtimeproxy.cri.exempt import Exemptions, PodTraits, SkipRules, workload_labels
from runtimeproxy.hooks.hookfile import FailurePolicy, ServerSpec

UID = "aaaaaaaa-1111-2222-3333-444455556666"


@dataclass
class Server:
    peer_pid: int | None
    file: str = "a.json"

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(self.file, "/run/a.sock", FailurePolicy.FAIL, frozenset())


def traits(
    uid: str = "other",
    namespace: str = "ns",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> PodTraits:
    return PodTraits(uid, namespace, labels or {}, annotations or {})


def exemptions(proc: Path, cgroup: str = "") -> Exemptions:
    (proc / "7").mkdir(exist_ok=True)
    (proc / "7" / "cgroup").write_text(cgroup)
    return Exemptions(str(proc))


def reason(
    known: Exemptions, pod: PodTraits, rules: SkipRules | None = None, *, fail_closed: bool = True
) -> str | None:
    return known.reason(pod, rules or SkipRules(), fail_closed=fail_closed)


MARK = {"skip": "true"}
CLASS, LEGACY = "koordinator.sh/priority-class", "scheduler.alpha.kubernetes.io/critical-pod"
MARKED = SkipRules("skip", "true", ("kube-system",), ("ci",))


@pytest.mark.parametrize(
    ("pod", "rules", "why"),
    [
        (traits(), MARKED, None),
        (traits(labels={"skip": "yes"}), MARKED, None),
        (traits(labels={"skip": ""}), SkipRules("", ""), None),
        (traits(labels=MARK), MARKED, "mark"),
        (traits(annotations=MARK), MARKED, "mark"),
        (traits(namespace="ci"), MARKED, "namespace"),
        (traits(namespace="kube-system"), MARKED, None),
    ],
)
def test_marks_and_namespaces(tmp_path: Path, pod: PodTraits, rules: SkipRules, why: str | None) -> None:
    assert reason(exemptions(tmp_path), pod, rules, fail_closed=False) == why


@pytest.mark.parametrize(
    ("namespace", "privileged", "fail_closed", "why"),
    [
        ("ns", ("kube-system",), False, "mark"),
        ("ns", ("kube-system",), True, None),
        ("ns", (), True, None),
        ("kube-system", ("kube-system",), True, "mark"),
        ("ns", ("*",), True, "mark"),
        ("kube-system-2", ("kube-system",), True, None),
        ("", ("kube-system",), True, None),
    ],
)
def test_where_a_server_must_be_heard_the_mark_counts_in_the_operators_namespaces_only(
    tmp_path: Path, namespace: str, privileged: tuple[str, ...], fail_closed: bool, why: str | None
) -> None:
    rules = SkipRules("skip", "true", privileged)
    pod = traits(namespace=namespace, labels=MARK)
    assert reason(exemptions(tmp_path), pod, rules, fail_closed=fail_closed) == why


@pytest.mark.parametrize(
    ("source", "why"), [("file", "static_pod"), ("http", "static_pod"), ("api", None), ("", None), ("File", None)]
)
def test_static_pods_are_told_by_kubelets_annotation(tmp_path: Path, source: str, why: str | None) -> None:
    pod = traits(annotations={"kubernetes.io/config.source": source})
    label = traits(labels={"kubernetes.io/config.source": source})
    known = exemptions(tmp_path)
    assert reason(known, pod, SkipRules(static_pods=True)) == why
    assert [reason(known, pod), reason(known, label, SkipRules(static_pods=True))] == [None, None]


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (traits(namespace="kube-system", labels={CLASS: "system-node-critical"}), "critical_pod"),
        (traits(namespace="kube-system", annotations={CLASS: "system-cluster-critical"}), "critical_pod"),
        (traits(namespace="kube-system", annotations={LEGACY: ""}), "critical_pod"),
        (traits(namespace="kube-system", labels={CLASS: "koord-batch"}), None),
        (traits(namespace="kube-system"), None),
        (traits(labels={CLASS: "system-node-critical"}), None),
        (traits(annotations={LEGACY: ""}), None),
    ],
)
def test_critical_pods_are_told_by_what_they_say_where_the_operator_trusts_it(
    tmp_path: Path, pod: PodTraits, why: str | None
) -> None:
    known = exemptions(tmp_path)
    assert reason(known, pod, SkipRules(critical_pods=True)) == why
    assert reason(known, pod) is None


@pytest.mark.parametrize(
    ("rules", "text", "could"),
    [
        (SkipRules("skip"), b"skip", True),
        (SkipRules("skip"), b"other", False),
        (SkipRules(""), b"", False),
        (SkipRules("", static_pods=True), b"kubernetes.io/config.source", True),
        (SkipRules("", critical_pods=True), CLASS.encode(), True),
        (SkipRules("", critical_pods=True), LEGACY.encode(), True),
    ],
)
def test_what_need_not_be_decoded(rules: SkipRules, text: bytes, could: bool) -> None:
    assert rules.could_apply(text.__contains__) == could


@pytest.mark.parametrize(
    ("cgroup", "own"),
    [
        ("", False),
        ("0::/system.slice/koord-qosd.service\n", False),
        ("0::/kubepods/podnotauid/x\n", False),
        (f"0::/kubepods/burstable/pod{UID}/abc\n", True),
        (f"0::/kubepods.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-a.scope\n", True),
        (f"12:cpu:/system.slice\n1:name=systemd:/kubepods/pod{UID.upper()}/abc\n", True),
    ],
)
def test_the_pod_a_server_lives_in(tmp_path: Path, cgroup: str, own: bool) -> None:
    known = exemptions(tmp_path, cgroup)
    known.learn([Server(7)], lambda uid: None)  # type: ignore[list-item]
    assert reason(known, traits(UID)) == ("own_pod" if own else None)
    assert reason(known, traits("")) is None


def test_a_static_pods_uid_has_no_dashes(tmp_path: Path) -> None:
    uid = UID.replace("-", "")
    known = exemptions(tmp_path, f"0::/kubepods/pod{uid}/abc\n")
    known.learn([Server(7)], lambda uid: None)  # type: ignore[list-item]
    assert reason(known, traits(uid)) == "own_pod"


def test_a_process_that_vanished_teaches_nothing(tmp_path: Path) -> None:
    known = Exemptions(str(tmp_path))
    known.learn([Server(8)], traits)  # type: ignore[list-item]
    assert reason(known, traits()) is None


@pytest.mark.parametrize(
    ("own", "other", "same"),
    [
        ({"app": "koordlet"}, {"app": "koordlet"}, True),
        ({"app": "koordlet", "pod-template-hash": "1"}, {"app": "koordlet", "pod-template-hash": "2"}, True),
        ({"app": "koordlet", "io.kubernetes.pod.uid": "1"}, {"app": "koordlet"}, True),
        ({"app": "koordlet"}, {"app": "koordlet", "role": "x"}, False),
        ({"app": "koordlet"}, {}, False),
        ({}, {}, False),
        ({"pod-template-hash": "1"}, {"pod-template-hash": "1"}, False),
    ],
)
def test_another_generation_of_the_same_workload(
    tmp_path: Path, own: dict[str, str], other: dict[str, str], same: bool
) -> None:
    known = exemptions(tmp_path, f"0::/kubepods/pod{UID}/abc\n")
    known.learn([Server(7)], lambda uid: traits(uid, labels=own))  # type: ignore[list-item]
    assert reason(known, traits(labels=other)) == ("own_pod" if same else None)
    assert reason(known, traits(namespace="elsewhere", labels=other)) is None


def test_what_was_learned_lasts_while_the_server_is_down_and_ends_with_its_file(tmp_path: Path) -> None:
    known = exemptions(tmp_path, f"0::/kubepods/pod{UID}/abc\n")
    labels = {"app": "koordlet"}
    known.learn([Server(7)], lambda uid: traits(uid, labels=labels))  # type: ignore[list-item]
    known.learn([Server(None)], lambda uid: None)  # type: ignore[list-item]
    assert reason(known, traits(labels=labels)) == "own_pod"
    known.learn([], lambda uid: None)
    assert reason(known, traits(labels=labels)) is None


def test_a_pod_that_is_not_known_yet_is_asked_for_again(tmp_path: Path) -> None:
    known = exemptions(tmp_path, f"0::/kubepods/pod{UID}/abc\n")
    labels = {"app": "koordlet"}
    known.learn([Server(7)], lambda uid: None)  # type: ignore[list-item]
    assert reason(known, traits(labels=labels)) is None
    known.learn([Server(7)], lambda uid: traits(uid, labels=labels))  # type: ignore[list-item]
    assert reason(known, traits(labels=labels)) == "own_pod"


def test_workload_labels() -> None:
    assert workload_labels({"app": "a", "pod-template-hash": "1", "io.kubernetes.pod.name": "x"}) == {"app": "a"}
