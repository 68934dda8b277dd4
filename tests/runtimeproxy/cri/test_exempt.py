"""Which pods are left alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from runtimeproxy.cri.exempt import Exemptions, PodTraits, workload_labels
from runtimeproxy.hooks.hookfile import Policy, ServerSpec

UID = "aaaaaaaa-1111-2222-3333-444455556666"
MARK = ("skip", "true")


@dataclass
class Server:
    peer_pid: int | None
    file: str = "a.json"

    @property
    def spec(self) -> ServerSpec:
        return ServerSpec(self.file, "/run/a.sock", Policy.FAIL, frozenset())


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


def reason(known: Exemptions, pod: PodTraits, mark: tuple[str, str] = MARK) -> str | None:
    return known.reason(pod, mark, ("kube-system",))


@pytest.mark.parametrize(
    ("pod", "mark", "why"),
    [
        (traits(), MARK, None),
        (traits(labels={"skip": "yes"}), MARK, None),
        (traits(labels={"skip": ""}), ("", ""), None),
        (traits(labels={"skip": "true"}), MARK, "mark"),
        (traits(annotations={"skip": "true"}), MARK, "mark"),
        (traits(namespace="kube-system"), MARK, "namespace"),
    ],
)
def test_marks_and_namespaces(tmp_path: Path, pod: PodTraits, mark: tuple[str, str], why: str | None) -> None:
    assert reason(exemptions(tmp_path), pod, mark) == why


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
