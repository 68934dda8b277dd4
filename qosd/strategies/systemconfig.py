"""The kernel's own settings that NodeSLO names (``systemStrategy``): memory watermarks, and vendor kernels' switches.

    minFreeKbytesFactor          vm.min_free_kbytes, in ten-thousandths of the node's memory      (node-qos §9)
    watermarkScaleFactor         vm.watermark_scale_factor
    memcgReapBackGround, schedGroupIdentityEnabled, schedIdleSaverWmark, pageCacheLimitEnabled
                                 their files, which only vendor kernels have
    schedFeatures                each feature of the scheduler that it names, on or off

Invariants: what is not set has no opinion, so the file goes back to its base; a value that is out of the file's range,
or for a file that this kernel lacks, is left out and said, and costs the others nothing. Nothing is rounded into range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from koord.host import files
from koord.host.files import Target, UnknownRow, ValueRefused
from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.schema import json_name
from koord.model.slo import SystemStrategy
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.model.rules import SYSTEM_CONFIG, HostFacts, Rules
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.memo import Memo, decide_anew

MIN_FREE, SCALE, FEATURES = "vm.min_free_kbytes", "vm.watermark_scale_factor", "sched_features"
_AS_SET: Mapping[str, str] = MappingProxyType(
    {
        "watermark_scale_factor": SCALE,
        "memcg_reap_back_ground": "memcg_reaper.reap_background",
        "sched_group_identity_enabled": "kernel.sched_group_identity_enabled",
        "sched_idle_saver_wmark": "kernel.sched_idle_saver_wmark",
        "page_cache_limit_enabled": "pagecache_limit.enabled",
    }
)
"""The fields whose value is the file's."""


class Setting(msgspec.Struct, frozen=True):
    """What one field of NodeSLO wants of the row ``name``, with what the value was made of."""

    field: str
    stated: object
    name: str
    value: int
    inputs: Inputs


class SystemConfig(Strategy):
    """The strategy ``systemConfig``, behind upstream's gate, which is off by default."""

    name: ClassVar[str] = "systemConfig"
    stage: ClassVar[Stage] = Stage.SPEC
    gate: ClassVar[str] = SYSTEM_CONFIG
    rows: ClassVar[frozenset[str]] = frozenset({MIN_FREE, FEATURES, *_AS_SET.values()})
    needs: ClassVar[Mapping[str, float]] = MappingProxyType({})
    grants: ClassVar[tuple[str, ...]] = (SYSTEM_CONFIG,)
    formulas: ClassVar[tuple[Formula, ...]] = (
        Formula(
            "min_free_kbytes",
            "floor(capacity_kb * factor / 10000)",
            lambda inputs: min_free_kb(number(inputs, "capacity_kb"), number(inputs, "factor")),
        ),
    )

    def enabled(self, snapshot: NodeSnapshot) -> bool:
        """Always: what NodeSLO does not set is released."""
        return True

    def decide(self, snapshot: NodeSnapshot, memory: Any) -> tuple[Decision, Memo]:
        """Depends on the rules alone, which know the host."""
        return decide_anew(memory, (snapshot.rules,), partial(_decision, snapshot.rules))


def min_free_kb(capacity_kb: int, factor: int) -> int:
    return capacity_kb * factor // 10_000


def _decision(rules: Rules) -> Decision:
    stated, host = rules.system_strategy, rules.host
    opinions: dict[Target, Opinion] = {}
    problems = list(_without_file(stated, host))
    for setting in _settings(stated, host):
        problem = _problem(setting, host)
        if problem:
            problems.append(problem)
        else:
            why = f"systemStrategy.{setting.field} {setting.stated} in NodeSLO"
            opinions[Target("", setting.name)] = Opinion.set(setting.value, why, setting.inputs)
    shown = ", ".join(f"{target.name} {opinion.value}" for target, opinion in opinions.items())
    return Decision("; ".join((shown or "no kernel setting", *problems)), opinions)


def _settings(stated: SystemStrategy, host: HostFacts) -> Iterator[Setting]:
    """Every field that is set and has a file."""
    factor, capacity_kb = stated.min_free_kbytes_factor, host.memory_total_bytes // 1024
    if factor is not None and capacity_kb:
        inputs: Inputs = {FORMULA: "min_free_kbytes", "capacity_kb": capacity_kb, "factor": factor}
        yield Setting("minFreeKbytesFactor", factor, MIN_FREE, min_free_kb(capacity_kb, factor), inputs)
    for field, name in _AS_SET.items():
        value = getattr(stated, field)
        if value is not None:
            yield Setting(json_name(field), value, name, value, {FORMULA: "given", "value": value})
    for feature, is_on in (stated.sched_features or {}).items():
        given: Inputs = {FORMULA: "given", "value": int(is_on)}
        shown = "true" if is_on else "false"
        yield Setting(f"schedFeatures.{feature}", shown, f"{FEATURES}@{feature}", int(is_on), given)


def _without_file(stated: SystemStrategy, host: HostFacts) -> Iterator[str]:
    """What is set and changes nothing here."""
    if stated.min_free_kbytes_factor is not None and host.memory_total_bytes < 1024:
        yield _said("minFreeKbytesFactor", stated.min_free_kbytes_factor, "the node's memory is not known")


def _problem(setting: Setting, host: HostFacts) -> str:
    """Why the setting is left out; "" if it is followed."""
    try:
        row = files.row(setting.name)
        row.check(setting.value, host.cgroup_version)
    except UnknownRow:
        return _said(setting.field, setting.stated, "this is no name of a scheduler feature")
    except ValueRefused as error:
        return _said(setting.field, setting.stated, str(error))
    if row.name not in host.system_files:
        why = "only vendor kernels have" if row.vendor else "this kernel, or its debugfs, does not have"
        return _said(setting.field, setting.stated, f"{why} {row.name}")
    if row.takes and setting.name not in host.system_files and _lists_features(host):
        return _said(setting.field, setting.stated, f"this kernel has no feature {row.qualifier}")
    return ""


def _lists_features(host: HostFacts) -> bool:
    """Could they be read? Else whoever writes the file says what is wrong with it."""
    return any(name.startswith(f"{FEATURES}@") for name in host.system_files)


def _said(field: str, stated: object, why: str) -> str:
    return f"systemStrategy.{field} {stated} is left out: {why}"
