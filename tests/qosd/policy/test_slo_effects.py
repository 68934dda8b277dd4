"""What the policy asks for and nobody does is told, field by field, by what this node has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from koord.host.files import ROWS
from koord.model import schema, slo, slo_defaults, slo_rules
from koord.model.featuregates import ALL_ALPHA, GATES
from qosd.hooks.table import HOOK_NAMES
from qosd.metrics import Metrics
from qosd.model.policy import EffectivePolicy, HostFacts, NodeSettings
from qosd.policy import sloeffects, slofields
from qosd.policy.slofields import CLASSES, EFFECTS, EXCEPTIONS, GAPS_BY_VALUE, MEANINGS, SWITCHES, Gap, Use
from qosd.policy.source import PolicySource
from qosd.strategies import speakers

ON_BOTH = frozenset({"cpu.idle", "cpu.max.burst", "vm.min_free_kbytes", "vm.watermark_scale_factor"})
BARE, STOCK_V1 = HostFacts(1, files=frozenset()), HostFacts(1, files=ON_BOTH)
STOCK_V1_WITH_SOFT_LIMITS = HostFacts(1, files=ON_BOTH | {"memory.soft_limit_in_bytes"})
ON_V2 = ON_BOTH | {"memory.min", "memory.low", "memory.high", "memory.oom.group"}
STOCK_V2, STOCK_V2_SINCE_5_19 = HostFacts(2, files=ON_V2), HostFacts(2, files=ON_V2 | {"memory.reclaim"})
VENDOR = HostFacts(2, frozenset({"LSR", "LS", "BE"}), files=frozenset(ROWS))
UNKNOWN = HostFacts(2)
EVERYTHING, MEMORY = {ALL_ALPHA: True}, {"CgroupReconcile": True}
ALL = [leaf.path for leaf in slo.every_leaf()]


def told(spec: Any, host: HostFacts = STOCK_V2, features: dict[str, bool] | None = None, **hooks: bool) -> list[str]:
    stated = slo_rules.checked(slo.decode_spec(spec))
    policy = EffectivePolicy(slo_defaults.in_force(stated), NodeSettings(hooks=hooks, features=features or {}), host)
    return list(sloeffects.without_effect(stated, policy))


def thresholds(**fields: Any) -> Any:
    return {"resourceUsedThresholdWithBE": {"enable": True, **fields}}


def of_class(cls: str, concern: str, **fields: Any) -> Any:
    return {"resourceQOSStrategy": {cls: {f"{concern}QOS": fields}}}


def burst(**fields: Any) -> Any:
    return {"cpuBurstStrategy": fields}


BE, LS = "resourceQOSStrategy.beClass", "resourceQOSStrategy.lsClass"
T, SYSTEM, BURST = "resourceUsedThresholdWithBE", "systemStrategy", "cpuBurstStrategy"
VENDORS = "which only vendor kernels have"
OFF = "feature gate {} is off (default)"
NO_BLOCK_IO, NO_BANDWIDTH = "limits and weights of block I/O are not set yet", "network bandwidth is not shared out yet"
NO_CORES = "core scheduling is not there yet"
SATISFACTION = "it needs cpuEvictBESatisfactionLowerPercent and cpuEvictBESatisfactionUpperPercent too"
MEMORY_80 = f"{T}.memoryEvictThresholdPercent: 80"


def none(subject: str, why: str) -> str:
    return f"spec.{subject} {'have' if ',' in subject else 'has'} no effect: {why}"


@pytest.mark.parametrize(
    ("spec", "host", "features", "sentences"),
    [
        ({}, STOCK_V1, {}, []),
        (thresholds(), STOCK_V1, {}, []),
        (
            thresholds(memoryEvictThresholdPercent=80),
            STOCK_V1,
            {},
            [none(MEMORY_80, f"{OFF.format('BEMemoryEvict')}; {OFF.format('MemoryEvict')}")],
        ),
        (thresholds(memoryEvictThresholdPercent=80), STOCK_V1, {"BEMemoryEvict": True}, []),
        (
            thresholds(memoryEvictThresholdPercent=80),
            STOCK_V1,
            {"MemoryEvict": True},
            [none(MEMORY_80, f"{OFF.format('BEMemoryEvict')}; it needs evictEnabledPriorityThreshold too")],
        ),
        (
            thresholds(memoryEvictThresholdPercent=80, evictEnabledPriorityThreshold=5999),
            STOCK_V1,
            {"MemoryEvict": True},
            [],
        ),
        (
            thresholds(cpuEvictBEUsageThresholdPercent=80),
            STOCK_V1,
            {"BECPUEvict": True},
            [none(f"{T}.cpuEvictBEUsageThresholdPercent: 80", SATISFACTION)],
        ),
        (
            {T: {"cpuSuppressThresholdPercent": 70, "cpuSuppressMinPercent": 10}},
            STOCK_V1,
            {},
            [none(f"{T}: cpuSuppressThresholdPercent, cpuSuppressMinPercent", "enable is false")],
        ),
        ({T: {"enable": False, "cpuSuppressThresholdPercent": 70}}, STOCK_V1, {}, []),
        (
            thresholds(),
            STOCK_V1,
            {"BECPUSuppress": False, "BECPUEvict": True},
            [
                none(
                    f"{T}.enable: true",
                    f"feature gate BECPUSuppress is off (by node.features); {SATISFACTION}; {OFF.format('CPUEvict')}; ",
                )
            ],
        ),
        (
            of_class("lsClass", "cpu", enable=True),
            STOCK_V2,
            {},
            [none(f"{LS}.cpuQOS.enable: true", f"this node has no cpu.bvt_warp_ns, {VENDORS}")],
        ),
        (of_class("lsClass", "cpu", enable=True), VENDOR, {}, []),
        (of_class("lsClass", "cpu", enable=True), UNKNOWN, {}, []),
        (of_class("beClass", "cpu", enable=True, schedIdle=1), STOCK_V2, {}, []),
        (
            of_class("lsClass", "cpu", enable=True, schedIdle=1),
            VENDOR,
            {},
            [none(f"{LS}.cpuQOS.schedIdle: 1", "only pods that count as BE are ever idle")],
        ),
        (
            of_class("beClass", "cpu", enable=True, coreExpeller=True),
            VENDOR,
            {},
            [none(f"{BE}.cpuQOS.coreExpeller: true", NO_CORES)],
        ),
        (
            of_class("beClass", "memory", enable=True, wmarkRatio=80),
            VENDOR,
            {},
            [none(f"{BE}.memoryQOS: enable, wmarkRatio", OFF.format("CgroupReconcile"))],
        ),
        (
            of_class("beClass", "memory", enable=True, wmarkRatio=80, wmarkMinAdj=10, lowLimitPercent=50),
            STOCK_V2,
            MEMORY,
            [
                none(f"{BE}.memoryQOS.wmarkRatio: 80", "this node has none of memory.wmark_ratio, memory.reclaim"),
                none(f"{BE}.memoryQOS.wmarkMinAdj: 10", f"this node has no memory.wmark_min_adj, {VENDORS}"),
            ],
        ),
        (
            of_class("beClass", "memory", enable=True, wmarkRatio=80, pageCacheLimitSize=4096, lowLimitPercent=50),
            STOCK_V2_SINCE_5_19,
            MEMORY,
            [],
        ),
        (
            of_class("beClass", "memory", enable=True, minLimitPercent=20, lowLimitPercent=50),
            STOCK_V1,
            MEMORY,
            [
                none(f"{BE}.memoryQOS.enable: true", "this node has none of memory.min, memory.low, memory.high, "),
                none(f"{BE}.memoryQOS.minLimitPercent: 20", f"this node has no memory.min, {VENDORS}"),
                none(f"{BE}.memoryQOS.lowLimitPercent: 50", "this node has none of memory.low, memory.soft_limit"),
            ],
        ),
        (
            of_class("beClass", "memory", enable=True, lowLimitPercent=50),
            STOCK_V1_WITH_SOFT_LIMITS,
            MEMORY,
            [],
        ),
        (
            of_class("beClass", "memory", enable=True, pageCacheLimitPercent=50, pageCacheLimitSize=4096),
            VENDOR,
            MEMORY,
            [none(f"{BE}.memoryQOS.pageCacheLimitPercent: 50", "pageCacheLimitSize takes its place")],
        ),
        (
            of_class("beClass", "memory", lowLimitPercent=50, priority=3),
            VENDOR,
            {},
            [none(f"{BE}.memoryQOS: lowLimitPercent, priority", "enable is false")],
        ),
        (of_class("beClass", "memory", enable=False, lowLimitPercent=50), VENDOR, {}, []),
        (
            of_class("beClass", "resctrl", enable=True, mbaPercent=50),
            STOCK_V2,
            {},
            [
                none(f"{BE}.resctrlQOS.enable: true", "there is no resctrl group BE"),
                none(f"{BE}.resctrlQOS.mbaPercent: 50", "resctrl groups keep the schemata that they were made with"),
            ],
        ),
        (of_class("beClass", "resctrl", enable=True), VENDOR, {}, []),
        (
            of_class("systemClass", "resctrl", enable=True),
            VENDOR,
            {},
            [
                none(
                    "resourceQOSStrategy.systemClass.resctrlQOS.enable: true",
                    "SYSTEM pods stay in resctrl's root group",
                )
            ],
        ),
        (
            of_class("beClass", "blkio", enable=True, blocks=[{"name": "/dev/vdb", "ioCfg": {"readBPS": 5}}]),
            VENDOR,
            EVERYTHING,
            [
                none(f"{BE}.blkioQOS.enable: true", NO_BLOCK_IO),
                none(f"{BE}.blkioQOS.blocks[0]: name, type", NO_BLOCK_IO),
                none(f"{BE}.blkioQOS.blocks[0].ioCfg.readBPS: 5", NO_BLOCK_IO),
            ],
        ),
        (of_class("beClass", "blkio", enable=False, blocks=[{"name": "/dev/vdb"}]), VENDOR, EVERYTHING, []),
        (
            of_class("lsClass", "network", enable=True, egressRequest="50M"),
            VENDOR,
            EVERYTHING,
            [none(f"{LS}.networkQOS: enable, egressRequest", NO_BANDWIDTH)],
        ),
        (
            of_class("cgroupRoot", "memory", enable=True),
            VENDOR,
            {},
            [none("resourceQOSStrategy.cgroupRoot.memoryQOS.enable: true", "cgroupRoot has blkioQOS alone")],
        ),
        (
            {"resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos", "cpuPolicy": "coreSched"}}},
            VENDOR,
            EVERYTHING,
            [
                none("resourceQOSStrategy.policies.cpuPolicy: 'coreSched'", NO_CORES),
                none("resourceQOSStrategy.policies.netQOSPolicy: 'terway-qos'", "nothing is written for Terway"),
            ],
        ),
        (burst(cpuBurstPercent=50), STOCK_V2, {}, [none(f"{BURST}.cpuBurstPercent: 50", "policy is 'none'")]),
        (burst(policy="none", cpuBurstPercent=50), STOCK_V2, {}, []),
        (burst(policy="auto", cpuBurstPercent=50, cfsQuotaBurstPercent=200), STOCK_V2, {}, []),
        (
            burst(policy="cpuBurstOnly", cpuBurstPercent=50, cfsQuotaBurstPercent=200),
            STOCK_V2,
            {},
            [none(f"{BURST}.cfsQuotaBurstPercent: 200", "policy is 'cpuBurstOnly'")],
        ),
        (
            burst(policy="auto", cpuBurstPercent=50),
            BARE,
            {},
            [none(f"{BURST}.cpuBurstPercent: 50", "this node has no cpu.max.burst")],
        ),
        (
            burst(policy="cpuBurstOnly"),
            BARE,
            {},
            [
                none(
                    f"{BURST}.policy: 'cpuBurstOnly'",
                    "this node has no cpu.max.burst; policy is 'cpuBurstOnly'",
                )
            ],
        ),
        (
            {SYSTEM: {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "1G"}},
            STOCK_V1,
            {},
            [
                none(f"{SYSTEM}.minFreeKbytesFactor: 100", OFF.format("SystemConfig")),
                none(f"{SYSTEM}.totalNetworkBandwidth: '1G'", NO_BANDWIDTH),
            ],
        ),
        (
            {SYSTEM: {"minFreeKbytesFactor": 100, "memcgReapBackGround": 1}},
            STOCK_V1,
            {"SystemConfig": True},
            [none(f"{SYSTEM}.memcgReapBackGround: 1", f"this node has no memcg_reaper.reap_background, {VENDORS}")],
        ),
        (
            {"hostApplications": [{"name": "a", "strategy": {}}, {"name": "b", "strategy": {"x": 1}}]},
            STOCK_V1,
            {},
            [none("hostApplications[1].strategy: an object", "nobody has settings of a single host application")],
        ),
        (
            {"extensions": {"koord": {}, "other": {"x": 1}}},
            STOCK_V1,
            {},
            [none("extensions.other", "nobody reads it on a node")],
        ),
    ],
)
def test_what_has_no_effect(spec: Any, host: HostFacts, features: dict[str, bool], sentences: list[str]) -> None:
    found = told(spec, host, features)
    assert len(found) == len(sentences), found
    for sentence, begins in zip(found, sentences, strict=True):
        assert sentence.startswith(begins)


def test_a_hook_that_is_off_is_told() -> None:
    spec = of_class("beClass", "memory", enable=True, lowLimitPercent=50)
    assert told(spec, features=MEMORY) == []
    subject = f"{BE}.memoryQOS: enable, lowLimitPercent"
    assert told(spec, features=MEMORY, memory=False) == [none(subject, "hook memory is off (node.hooks)")]


@pytest.mark.parametrize("host", [STOCK_V1, STOCK_V2, VENDOR, UNKNOWN])
def test_a_nodeslo_that_spells_out_every_default_asks_for_nothing(host: HostFacts) -> None:
    assert told(schema.parse_json(schema.encode(slo_defaults.defaults())), host) == []
    assert told({"extensions": {"Object": {}}, "hostApplications": []}, host) == []


def pattern(path: str) -> str:
    return re.sub(rf"({'|'.join(CLASSES)})\.", "*.", path)


def test_every_field_has_its_row_and_no_row_is_of_nothing() -> None:
    patterns = {pattern(path) for path in ALL}
    assert MEANINGS.keys() == patterns
    assert all(slofields.effect_of(path.replace("[]", "[3]")) is not None for path in ALL)
    for prefix in (*EXCEPTIONS, *EFFECTS):
        assert any(path == prefix or path.startswith(f"{prefix}.") for path in (*ALL, *patterns)), prefix
    assert {*GAPS_BY_VALUE, *(f"{place}.{name}" for place, (name, _) in SWITCHES.items())} <= patterns


USES = {
    f"{path} {use.by or use.gate}": use
    for path, effect in (*EFFECTS.items(), *EXCEPTIONS.items())
    for use in (() if isinstance(effect, Gap) else effect)
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_whoever_acts_is_known(use: Use) -> None:
    assert bool(use.by or use.gate)
    assert use.by in {"", *HOOK_NAMES, *(each.name for each in speakers())}
    assert use.gate in {"", *GATES}
    assert set(use.files) <= ROWS.keys()


@pytest.mark.parametrize("meaning", MEANINGS.values(), ids=MEANINGS)
def test_every_meaning_is_a_sentence(meaning: str) -> None:
    assert re.fullmatch(r"[A-Z0-9].*\.", meaning)
    assert "|" not in meaning


TYPO = "spec: {cpuBurstStrategy: {cpuBurstPercent: 50, policy: auto}}"


def test_the_rules_warnings_follow_what_the_node_has(tmp_path: Path) -> None:
    file, host = tmp_path / "rules.yaml", [UNKNOWN]
    file.write_text(TYPO)
    policy = PolicySource(file, lambda: host[0], Metrics())
    policy.load()
    assert policy.warnings == (), "nobody knows yet what the node has"
    host[0] = HostFacts(1, files=frozenset())
    assert policy.look_at_host()
    assert policy.warnings == (
        f"{file}: spec.cpuBurstStrategy.cpuBurstPercent: 50 has no effect: this node has no cpu.max.burst",
    )
    file.write_text("[")
    policy.load()
    assert len(policy.warnings) == 2, "the last good rules stay, and so does what of them has no effect"
    file.write_text("spec: {}")
    policy.load()
    assert policy.warnings == ()


def test_there_are_few_of_them_however_much_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    applications = "".join(f"  - {{name: a{number}, strategy: {{x: 1}}}}\n" for number in range(200))
    file.write_text(f"spec:\n  hostApplications:\n{applications}")
    policy = PolicySource(file, lambda: STOCK_V1, Metrics())
    policy.load()
    assert len(policy.warnings) == 51
    assert policy.warnings[-1] == f"{file}: and 150 more"
