"""QoS classes: labels, the derivation for pods without one, and what each class asks of a pod."""

from __future__ import annotations

import pytest

from koord.model import cgroup_parent, qos, requirements
from koord.model.cgroup_parent import CgroupStyle, PodCgroup
from koord.model.qos import LABEL_QOS, DerivationRules, KubeQoS, QoSClass
from koord.model.quantity import Bytes, MilliCPU
from koord.model.requirements import ContainerAmounts

G, BU, BE = KubeQoS.GUARANTEED, KubeQoS.BURSTABLE, KubeQoS.BEST_EFFORT
STATIC, ALWAYS = DerivationRules(cpu_manager_static=True), DerivationRules(guaranteed_is_lsr=True)
UID = "6f4c7f1e-0b1a-4a53-9f0e-1c2d3e4f5a6b"
UID_ = UID.replace("-", "_")


@pytest.mark.parametrize("text", [None, "", "ls", "lse", "Ls", "system", "LSX", "BE ", "BestEffort", "koord-be"])
def test_unknown_text_is_no_class(text: str | None) -> None:
    assert qos.parse(text) is None
    assert qos.labelled({} if text is None else {LABEL_QOS: text}) is None


@pytest.mark.parametrize("text", ["LSE", "LSR", "LS", "BE", "SYSTEM"])
def test_labels_are_the_class_names(text: str) -> None:
    raw = qos.labelled({LABEL_QOS: text})
    derived = qos.derive(raw, BE, rules=ALWAYS)
    assert (derived.qos, derived.raw, derived.source) == (text, raw, "label")


@pytest.mark.parametrize(
    ("kube", "running", "rules", "cls", "source"),
    [
        (G, True, None, "LS", "kubernetes QoS Guaranteed"),
        (G, False, None, "LS", "kubernetes QoS Guaranteed"),
        (G, True, STATIC, "LSR", "kubernetes QoS Guaranteed, running under CPU manager static"),
        (G, False, STATIC, "LS", "kubernetes QoS Guaranteed"),
        (G, False, ALWAYS, "LSR", "kubernetes QoS Guaranteed, by setting"),
        (BU, True, STATIC, "LS", "kubernetes QoS Burstable"),
        (BU, True, ALWAYS, "LS", "kubernetes QoS Burstable"),
        (BE, True, STATIC, "BE", "kubernetes QoS BestEffort"),
    ],
)
def test_derivation_without_label(
    kube: KubeQoS, running: bool, rules: DerivationRules | None, cls: str, source: str
) -> None:
    derived = qos.derive(None, kube, running=running, rules=rules)
    assert (derived.qos, derived.source, derived.raw) == (cls, source, None)


@pytest.mark.parametrize(
    ("raw", "has_cpuset", "seen"),
    [(None, True, "LSR"), (None, False, None), (QoSClass.LS, True, "LS"), (QoSClass.BE, True, "BE")],
)
def test_hooks_see_a_pod_with_cpus_of_its_own_as_lsr(raw: QoSClass | None, has_cpuset: bool, seen: str | None) -> None:
    assert qos.hook_class(raw, has_cpuset) == seen


@pytest.mark.parametrize(
    ("raw", "kube", "band", "answer"),
    [
        (QoSClass.BE, G, "", True),
        (QoSClass.BE, BU, "", True),
        (QoSClass.BE, BE, "mid", True),
        (None, BE, "", True),
        (None, BE, "mid", False),
        (None, BU, "", False),
        (None, BU, "free", True),
        (QoSClass.LS, BU, "free", True),
        (QoSClass.LS, BE, "", False),
        (QoSClass.LSR, G, "", False),
        (QoSClass.SYSTEM, BE, "", False),
    ],
)
def test_best_effort_is_who_the_class_says_wherever_kubelet_has_it(
    raw: QoSClass | None, kube: KubeQoS, band: str, answer: bool
) -> None:
    assert qos.is_best_effort(raw, kube, is_free=band == "free", is_mid=band == "mid") is answer


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/kubepods", "/kubepods.slice", "/kubepods/burstable", "/system.slice/x.service", "/k8s.io/pod1",
        "/kubepods/pod", "/kubepods/other/pod1", "/user/pod1", "/kubepods.slice/kubepods-besteffort.slice",
        "/kubepods/../kubepods/pod1", "/kubepods/burstable/pod1/abc", "/kubepods/pod.hidden", "/notkubepods/pod1",
        "/xkubepods-pod1.slice", "/kubepods-pod_1.slice", "/kubepods/pod" + "1" * 129, "/a" * 3000 + "/kubepods/pod1",
        "/kubepods/pod1\n",
    ],
)  # fmt: skip
def test_paths_that_are_no_pod_of_kubelets(path: str) -> None:
    assert cgroup_parent.parse(path) is None
    assert cgroup_parent.kube_qos(path) is None


@pytest.mark.parametrize("tier", [(G, "", ""), (BU, "-burstable", "burstable/"), (BE, "-besteffort", "besteffort/")])
def test_both_path_styles_and_roots(tier: tuple[KubeQoS, str, str]) -> None:
    kube, dashed, folder = tier
    systemd = PodCgroup(kube, UID, CgroupStyle.SYSTEMD)
    cgroupfs = PodCgroup(kube, UID, CgroupStyle.CGROUPFS)
    parent = f"kubepods{dashed}.slice/" if dashed else ""
    for path, expected in [
        (f"/kubepods.slice/{parent}kubepods{dashed}-pod{UID_}.slice", systemd),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-{parent}kubelet-kubepods{dashed}-pod{UID_}.slice", systemd),
        (f"/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods{dashed}-pod{UID_}.slice/", systemd),
        (f"kubepods{dashed}-pod{UID_}.slice", systemd),
        (f"kubepods{dashed}-pod{UID_}.slice:cri-containerd:0123abc", systemd),
        (f"/kubepods/{folder}pod{UID}", cgroupfs),
        (f"/kubelet/kubepods/{folder}pod{UID}/", cgroupfs),
        (f"kubepods/{folder}pod{UID}", cgroupfs),
    ]:
        assert cgroup_parent.parse(path) == expected, path
        assert cgroup_parent.kube_qos(path) is kube


def test_static_pods_have_a_hash_for_a_uid() -> None:
    pod = cgroup_parent.parse("/kubepods/burstable/pod0123456789abcdef0123456789abcdef")
    assert pod is not None
    assert pod.uid == "0123456789abcdef0123456789abcdef"


def _container(
    cpu: tuple[int | None, int | None] = (None, None), memory: tuple[int | None, int | None] = (None, None)
) -> ContainerAmounts:
    milli = [None if amount is None else MilliCPU(amount) for amount in cpu]
    in_bytes = [None if amount is None else Bytes(amount) for amount in memory]
    return ContainerAmounts("c", milli[0], milli[1], in_bytes[0], in_bytes[1])


FULL = _container((1000, 1000), (10, 10))


@pytest.mark.parametrize(
    ("containers", "kube"),
    [
        ([], BE),
        ([_container()], BE),
        ([_container((0, 0), (0, 0))], BE),
        ([FULL], G),
        ([_container((None, 1000), (None, 10))], G),
        ([FULL, FULL], G),
        ([FULL, _container()], BU),
        ([_container((1000, 1000))], BU),
        ([_container((500, 1000), (10, 10))], BU),
        ([_container((500, None))], BU),
        ([_container(memory=(None, 10))], BU),
    ],
)
def test_kube_qos(containers: list[ContainerAmounts], kube: KubeQoS) -> None:
    assert requirements.kube_qos(containers) is kube


@pytest.mark.parametrize(
    ("cls", "container", "complaints"),
    [
        ("LSR", _container((1500, 1500)), ["container 'c': LSR needs whole CPUs, not 1500m"]),
        ("LSE", _container((1000, 2000)), ["container 'c': LSE needs cpu request = limit, not 1000m and 2000m"]),
        ("LSE", _container((2000, None)), ["container 'c': LSE needs cpu request = limit, not 2000m and 0m"]),
        ("LSE", _container(), ["container 'c': LSE needs whole CPUs, not 0m"]),
        ("LSR", _container((2000, 2000)), []),
        ("LSR", _container((None, 2000)), []),
        ("SYSTEM", _container((100, None), (None, 10)), ["container 'c': SYSTEM needs a cpu limit"]),
        ("SYSTEM", _container((None, 100)), ["container 'c': SYSTEM needs a memory limit"]),
        ("SYSTEM", _container((None, 100), (None, 10)), []),
        ("LS", _container(), []),
        ("BE", _container(), []),
    ],
)
def test_what_classes_ask(cls: str, container: ContainerAmounts, complaints: list[str]) -> None:
    assert list(requirements.complaints(QoSClass(cls), [container])) == complaints
