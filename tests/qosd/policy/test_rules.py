"""The rules file: what is refused and how it is said, what stays, and that a change is seen."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from pathlib import Path

import pytest

from koord.service.inotify import FileWatch
from qosd.metrics import Metrics
from qosd.model.rules import CPUManagerPolicy, HostFacts, Pool, Rules
from qosd.policy.rulesfile import RulesSource

EXAMPLE = Path(__file__).parents[2] / "manifests" / "qosd-rules.yaml"


def source(file: Path, metrics: Metrics | None = None, **gate_flags: bool) -> RulesSource:
    return RulesSource(file, HostFacts, metrics or Metrics(), gate_flags=gate_flags)


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
    rules = source(file, metrics)
    file.write_text("node: {cpuManagerPolicy: static}")
    rules.load()
    file.write_text(text)
    rules.load()
    assert rules.current.node.cpu_manager_policy is CPUManagerPolicy.STATIC
    assert len(rules.warnings) == 1
    assert rules.warnings[0].startswith(f"{file}")
    assert complaint in rules.warnings[0]
    assert metrics.rules_loads["kept_last_good"] == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"node: \x00"])
def test_no_text_at_all(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(content)
    rules = source(file)
    rules.load()
    assert str(file) in rules.warnings[0]


def test_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").mkdir()
    rules = source(tmp_path / "rules.yaml")
    rules.load()
    assert "cannot be read: Is a directory" in rules.warnings[0]


def test_no_file_is_the_defaults_and_no_complaint(tmp_path: Path) -> None:
    rules = source(tmp_path / "rules.yaml")
    rules.load()
    assert (rules.warnings, rules.current) == ((), Rules())


def test_an_unknown_key_of_nodeslo_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("spec: {cpuBurstStrategy: {newer: 1}}\nnode: {guaranteedAs: LSR}")
    rules = source(file)
    rules.load()
    assert rules.warnings == (f"{file}: spec.cpuBurstStrategy.newer: no such key in NodeSLO, ignored",)
    assert rules.current.node.guaranteed_is_lsr


def test_what_is_allocatable_to_batch_and_mid_pods(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(
        "node: {evictionDryRun: true, allocatable: {koordinator.sh/batch-cpu: 2k, kubernetes.io/mid-memory: 1Gi}}"
    )
    rules = source(file)
    rules.load()
    amounts = {name: amount.value() for name, amount in rules.current.node.allocatable.items()}
    assert (rules.warnings, amounts) == ((), {"kubernetes.io/batch-cpu": 2000, "kubernetes.io/mid-memory": 1 << 30})
    assert rules.current.node.eviction_dry_run


PARTLY = """
spec:
  resourceQOSStrategy: {beClass: {cpuQOS: {enable: true, groupIdentity: 9}}}
  resourceUsedThresholdWithBE: {cpuEvictBESatisfactionLowerPercent: 60}
node: {guaranteedAs: LSR}
"""


def test_a_bad_leaf_of_nodeslo_is_a_warning_and_the_rest_counts(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(PARTLY)
    rules = source(file)
    rules.load()
    be_class = rules.current.qos_strategy.be_class
    assert be_class is not None and be_class.cpu_qos is not None
    assert (be_class.cpu_qos.enable, be_class.cpu_qos.group_identity) == (True, -1), "the class's default"
    assert rules.current.node.guaranteed_is_lsr
    path = "spec.resourceUsedThresholdWithBE.cpuEvictBESatisfactionLowerPercent"
    assert rules.warnings == (
        f"{file}: spec.resourceQOSStrategy.beClass.cpuQOS.groupIdentity: 9 is not in -1..2; it counts as not set",
        f"{file}: {path}: 60 needs cpuEvictBESatisfactionUpperPercent too; it counts as not set",
    )


def test_an_unknown_feature_gate_is_a_warning_and_the_others_count(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("node: {features: {Newer: true, BECPUEvict: true}, guaranteedAs: LSR}")
    rules = source(file)
    rules.load()
    assert rules.warnings == (f"{file}: node.features: 'Newer' is no feature gate; it counts as not set",)
    assert rules.current.gate("BECPUEvict") == (True, "by node.features")
    assert rules.current.node.guaranteed_is_lsr


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
    rules = source(file, BECPUEvict=True)
    if text is not None:
        file.write_text(text)
    rules.load()
    assert rules.current.gate("BECPUEvict") == state


def test_warnings_are_few_however_much_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("spec:\n" + "".join(f"  key{number}: 1\n" for number in range(5000)))
    rules = source(file)
    rules.load()
    assert len(rules.warnings) == 51
    assert rules.warnings[-1] == f"{file}: and 4950 more"


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
    rules = source(file)
    rules.load()
    node = rules.current.node
    assert node.ls_pools == (Pool(0, 0, "4-6"), Pool(0, 1, "8-13"))
    assert node.be_pools == (Pool(0, 0, "2-13"),)
    assert (node.system_cpuset, node.cpu_normalization_ratio) == ("14", Fraction(6, 5))
    assert (node.system_exclusive, node.reserved_cpus, node.reserved_cpu_milli) == (False, "15", 1500)
    assert (node.be_cpu_manager, node.unset_cpu_quota, node.rdt_verified) == (True, False, True)
    assert not node.limits_in_cri
    assert node.allocatable_memory_bytes == 62 << 30
    assert not rules.current.enabled("memory")


def test_the_annotated_example_says_the_defaults() -> None:
    rules = source(EXAMPLE)
    rules.load()
    assert rules.warnings == ()
    assert rules.current.slo == Rules().slo
    assert {name: on for name, on in rules.current.node.hooks.items() if not on} == {}
    assert rules.current.node.features == {}
    assert rules.current.node.derivation == Rules().node.derivation
    assert rules.current.node.limits_in_cri is None


async def test_a_change_of_the_file_is_seen_by_inotify(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    rules = source(file)
    seen = asyncio.Event()

    def load() -> None:
        rules.load()
        seen.set()

    watch = FileWatch(asyncio.get_running_loop(), str(file), load)
    try:
        for policy in ("static", "none"):
            (tmp_path / "new").write_text(f"node: {{cpuManagerPolicy: {policy}}}")
            (tmp_path / "new").rename(file)
            await asyncio.wait_for(seen.wait(), 5)
            seen.clear()
            assert rules.current.node.cpu_manager_policy == policy
    finally:
        watch.close()
