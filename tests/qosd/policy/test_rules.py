"""The rules file: what is refused and how it is said, what stays, and that a change is seen."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from pathlib import Path

import pytest

from koord.service.inotify import FileWatch
from qosd.metrics import Metrics
from qosd.model.policy import CPUManagerPolicy, EffectivePolicy, HostFacts, Pool
from qosd.policy.source import PolicySource

EXAMPLE = Path(__file__).parents[2] / "manifests" / "qosd-rules.yaml"


def source(file: Path, metrics: Metrics | None = None, **gate_flags: bool) -> PolicySource:
    return PolicySource(file, HostFacts, metrics or Metrics(), gate_flags=gate_flags)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node: {cpuManagerPolicy: dynamic}", "node.cpuManagerPolicy: 'dynamic' is not one of none, static"),
        ("node: {sharedPools: {ls: [{cpuset: 3-1}]}}", "node.sharedPools.ls[0].cpuset: '3-1' is not a CPU list"),
        ("node: {sharedPools: {ls: [{socket: 0}]}}", "node.sharedPools.ls[0]: an object lacks cpuset"),
        ("node: {sharedPool: {}}", "node.sharedPool: 'sharedPool' is no key of this section"),
        ("node: {systemQOS: {cpuset: 14}}", "node.systemQOS.cpuset: 14 is not a string"),
        ("node: {systemQOS: {cpusetExclusive: 1}}", "node.systemQOS.cpusetExclusive: 1 is neither true nor false"),
        ("node: {reservation: {reservedCPUs: x}}", "node.reservation.reservedCPUs: 'x' is not a CPU list"),
        ("node: {reservation: {resources: {cpu: -1}}}", "node.reservation.resources.cpu: '-1' is negative"),
        ("node: {reservation: {applyPolicy: x}}", "'x' is not one of Default, ReservedCPUsOnly"),
        ("node: {cpuNormalizationRatio: 0}", "node.cpuNormalizationRatio: 0 is neither -1 (off) nor a positive number"),
        ("node: {hooks: {cpusets: true}}", "node.hooks: 'cpusets' is no hook; there are batchResource"),
        ("node: {hooks: {cpuset: 1}}", "node.hooks.cpuset: 1 is neither true nor false"),
        ("node: {features: {CPUBurst: 1}}", "node.features.CPUBurst: 1 is neither true nor false"),
        ("node: {features: [CPUBurst]}", "node.features: a list is not an object"),
        ("node: {guaranteedAs: BE}", "node.guaranteedAs: 'BE' is not one of LS, LSR"),
        ("node: {allocatableMemory: -1Gi}", "node.allocatableMemory: '-1Gi' is negative"),
        (
            "node: {allocatable: {cpu: 4}}",
            "node.allocatable: 'cpu' is no extended resource; there are kubernetes.io/batch-",
        ),
        ("node: {allocatable: {kubernetes.io/batch-cpu: -1}}", "kubernetes.io/batch-cpu]: '-1' is negative"),
        ("node: {allocatable: {kubernetes.io/batch-cpu: x}}", "node.allocatable"),
        ("node: {evictionDryRun: 1}", "node.evictionDryRun: 1 is neither true nor false"),
        (
            "spec: {resourceQOSStrategy: {lsClass: {cpuQOS: 3}}}",
            "spec.resourceQOSStrategy.lsClass.cpuQOS: 3 is not an object",
        ),
        (
            "spec: {resourceUsedThresholdWithBE: {enable: 1}}",
            "spec.resourceUsedThresholdWithBE.enable: 1 is neither true nor false",
        ),
        ("spec: []x", "is not YAML"),
        ("- 1", "must be a mapping"),
        ("rules: {}", "rules: is no section; there are spec, node"),
        ("spec: {a: 1, a: 2", "is not YAML"),
    ],
)
def test_a_bad_file_keeps_the_last_good_one_and_says_what_is_wrong_where(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file, metrics = tmp_path / "rules.yaml", Metrics()
    policy = source(file, metrics)
    file.write_text("node: {cpuManagerPolicy: static}")
    policy.load()
    file.write_text(text)
    policy.load()
    assert policy.current.node.cpu_manager_policy is CPUManagerPolicy.STATIC
    assert len(policy.warnings) == 1
    assert policy.warnings[0].startswith(f"{file}")
    assert complaint in policy.warnings[0]
    assert metrics.rules_loads["kept_last_good"] == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"node: \x00"])
def test_no_text_at_all(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(content)
    policy = source(file)
    policy.load()
    assert str(file) in policy.warnings[0]


def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").mkdir()
    policy = source(tmp_path / "rules.yaml")
    policy.load()
    assert "cannot be read: Is a directory" in policy.warnings[0]


def test_no_file_is_the_defaults_and_no_complaint(tmp_path: Path) -> None:
    policy = source(tmp_path / "rules.yaml")
    policy.load()
    assert (policy.warnings, policy.current) == ((), EffectivePolicy())


def test_an_unknown_key_of_nodeslo_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("spec: {cpuBurstStrategy: {newer: 1}}\nnode: {guaranteedAs: LSR}")
    policy = source(file)
    policy.load()
    assert policy.warnings == (f"{file}: spec.cpuBurstStrategy.newer: no such key in NodeSLO, ignored",)
    assert policy.current.node.guaranteed_is_lsr


def test_what_is_allocatable_to_batch_and_mid_pods(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "node: {evictionDryRun: true, allocatable: {koordinator.sh/batch-cpu: 2k, kubernetes.io/mid-memory: 1Gi}}"
    )
    policy = source(file)
    policy.load()
    amounts = {name: amount.value() for name, amount in policy.current.node.allocatable.items()}
    assert (policy.warnings, amounts) == ((), {"kubernetes.io/batch-cpu": 2000, "kubernetes.io/mid-memory": 1 << 30})
    assert policy.current.node.eviction_dry_run


PARTLY = """
spec:
  resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: 9}}}
  resourceUsedThresholdWithBE: {cpuEvictBESatisfactionLowerPercent: 60}
node: {guaranteedAs: LSR}
"""


def test_a_bad_leaf_of_nodeslo_is_a_warning_and_the_rest_counts(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(PARTLY)
    policy = source(file)
    policy.load()
    be_class = policy.current.qos_strategy.be_class
    assert be_class is not None and be_class.cpu_qos is not None
    assert (be_class.cpu_qos.enable, be_class.cpu_qos.group_identity) == (True, -1), "the class's default"
    assert policy.current.node.guaranteed_is_lsr
    path = "spec.resourceUsedThresholdWithBE.cpuEvictBESatisfactionLowerPercent"
    assert policy.warnings == (
        f"{file}: spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity: 9 is not in -1..2; it counts as not set",
        f"{file}: {path}: 60 needs cpuEvictBESatisfactionUpperPercent too; it counts as not set",
    )


def test_an_unknown_feature_gate_is_a_warning_and_the_others_count(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("node: {features: {Newer: true, BECPUEvict: true}, guaranteedAs: LSR}")
    policy = source(file)
    policy.load()
    assert policy.warnings == (f"{file}: node.features: 'Newer' is no feature gate; it counts as not set",)
    assert policy.current.gate("BECPUEvict") == (True, "by node.features")
    assert policy.current.node.guaranteed_is_lsr


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (None, (True, "by --feature-gates")),
        ("[", (True, "by --feature-gates")),
        ("spec: {}", (True, "by --feature-gates")),
        ("node: {features: {CPUEvict: true}}", (True, "by --feature-gates")),
        ("node: {features: {BECPUEvict: false}}", (False, "by node.features")),
        ("node: {features: {AllAlpha: false}}", (False, "by node.features")),
    ],
)
def test_the_file_says_more_than_the_command_line(tmp_path: Path, text: str | None, state: tuple[bool, str]) -> None:
    file = tmp_path / "rules.yaml"
    policy = source(file, BECPUEvict=True)
    if text is not None:
        file.write_text(text)
    policy.load()
    assert policy.current.gate("BECPUEvict") == state


def test_warnings_are_few_however_much_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("spec:\n" + "".join(f"  key{number}: 1\n" for number in range(5000)))
    policy = source(file)
    policy.load()
    assert len(policy.warnings) == 51
    assert policy.warnings[-1] == f"{file}: and 4950 more"


def test_the_whole_node_section(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("""
node:
  cpuManagerPolicy: static
  sharedPools:
    ls: [{socket: 0, node: 1, cpuset: "8-13"}, {socket: 0, node: 0, cpuset: "4,5,6"}]
    be: [{cpuset: "2-13"}]
  beCPUManager: true
  systemQOS: {cpuset: "14", cpusetExclusive: false}
  reservation: {reservedCPUs: "15", resources: {cpu: 1500m, memory: 1Gi}, applyPolicy: ReservedCPUsOnly}
  cpuNormalizationRatio: "1.20"
  disableUnsetCPUQuota: true
  limitsInCRI: false
  resctrl: {runtimeVerified: true}
  allocatableMemory: 62Gi
  hooks: {memory: false}
""")
    policy = source(file)
    policy.load()
    node = policy.current.node
    assert node.ls_pools == (Pool(0, 0, "4-6"), Pool(0, 1, "8-13"))
    assert node.be_pools == (Pool(0, 0, "2-13"),)
    assert (node.system_cpuset, node.cpu_normalization_ratio) == ("14", Fraction(6, 5))
    assert (node.system_exclusive, node.reserved_cpus, node.reserved_cpu_milli) == (False, "15", 1500)
    assert (node.be_cpu_manager, node.unset_cpu_quota, node.rdt_verified) == (True, False, True)
    assert not node.limits_in_cri
    assert node.allocatable_memory_bytes == 62 << 30
    assert not policy.current.enabled("memory")


def test_the_annotated_example_says_the_defaults() -> None:
    policy = source(EXAMPLE)
    policy.load()
    assert policy.warnings == ()
    assert policy.current.slo == EffectivePolicy().slo
    assert {name: on for name, on in policy.current.node.hooks.items() if not on} == {}
    assert policy.current.node.features == {}
    assert policy.current.node.derivation == EffectivePolicy().node.derivation
    assert policy.current.node.limits_in_cri is None


async def test_a_change_of_the_file_is_seen_by_inotify(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    policy = source(file)
    seen = asyncio.Event()

    def load() -> None:
        policy.load()
        seen.set()

    watch = FileWatch(asyncio.get_running_loop(), str(file), load)
    try:
        for manager in ("static", "none"):
            (tmp_path / "new").write_text(f"node: {{cpuManagerPolicy: {manager}}}")
            (tmp_path / "new").rename(file)
            await asyncio.wait_for(seen.wait(), 5)
            seen.clear()
            assert policy.current.node.cpu_manager_policy == manager
    finally:
        watch.close()
