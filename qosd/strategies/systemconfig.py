"""Sets the kernel settings that NodeSLO names (``systemStrategy``): memory watermarks, and vendor kernels' switches.

    minFreeKbytesFactor          vm.min_free_kbytes, in ten-thousandths of the node's memory
    watermarkScaleFactor         vm.watermark_scale_factor
    memcgReapBackGround, schedGroupIdentityEnabled, schedIdleSaverWmark, pageCacheLimitEnabled
                                 their files, which only vendor kernels have
    schedFeatures                each feature of the scheduler that it names, on or off

Invariants: a field that is not set has no opinion, so its file goes back to its base; a value that is out of the file's
range, or for a file that this kernel lacks, is left out alone, and reported. No value is rounded into range. A wrong
value is no opinion on the setting: the value of before stays in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import ClassVar

import msgspec

from koord.host import files
from koord.host.files import Target, UnknownRow, ValueRefused
from koord.model.formulas import FORMULA, Formula, Inputs, number
from koord.model.schema import json_name
from koord.model.slo import SystemStrategy
from qosd.decide.decision import Decision, Opinion, Stage, Strategy
from qosd.model.policy import SYSTEM_CONFIG, EffectivePolicy, HostFacts
from qosd.model.snapshot import NodeSnapshot
from qosd.strategies.memo import Memo, decide_anew

MIN_FREE, SCALE, FEATURES = "vm.min_free_kbytes", "vm.watermark_scale_factor", "sched_features"
_STAYS = ", and what is set stays"
_AS_SET: Mapping[str, str] = MappingProxyType(
    {
        "watermark_scale_factor": SCALE,
        "memcg_reap_back_ground": "memcg_reaper.reap_background",
        "sched_group_identity_enabled": "kernel.sched_group_identity_enabled",
        "sched_idle_saver_wmark": "kernel.sched_idle_saver_wmark",
        "page_cache_limit_enabled": "pagecache_limit.enabled",
    }
)
"""The fields whose value is written as it is, by row."""


class KernelSetting(msgspec.Struct, frozen=True):
    """The value that one field of NodeSLO sets for the row ``name``; ``inputs``: what the value was made from."""

    field: str
    stated: object
    name: str
    value: int
    inputs: Inputs


class SystemConfig(Strategy[Memo]):
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
        """Always: settings that NodeSLO does not have are released."""
        return True

    def decide(self, snapshot: NodeSnapshot, last: Memo | None) -> tuple[Decision, Memo]:
        """Decides from the policy alone, which has the facts of the host."""
        return decide_anew(last, (snapshot.policy,), partial(_decision, snapshot.policy))


def min_free_kb(capacity_kb: int, factor: int) -> int:
    return capacity_kb * factor // 10_000


def _decision(policy: EffectivePolicy) -> Decision:
    stated, host = policy.system_strategy, policy.host
    opinions = {Target("", name): Opinion.keep(problem) for name, problem in _untold(stated, policy)}
    problems = [opinion.why for opinion in opinions.values()]
    values = []
    for setting in _settings(stated, host):
        target, problem = Target("", setting.name), _without_file(setting, host)
        refused = "" if problem else _refused(setting, host)
        if refused:
            opinions[target] = Opinion.keep(refused)
        elif not problem:
            why = f"systemStrategy.{setting.field} {setting.stated} in NodeSLO"
            opinions[target] = Opinion.set(setting.value, why, setting.inputs)
            values.append(f"{setting.name} {setting.value}")
        problems += filter(None, (problem, refused))
    return Decision("; ".join((", ".join(values) or "no kernel setting", *problems)), opinions)


def _settings(stated: SystemStrategy, host: HostFacts) -> Iterator[KernelSetting]:
    """Yields every field that is set and has a file."""
    factor, capacity_kb = stated.min_free_kbytes_factor, host.memory_total_bytes // 1024
    if factor is not None and capacity_kb:
        inputs: Inputs = {FORMULA: "min_free_kbytes", "capacity_kb": capacity_kb, "factor": factor}
        yield KernelSetting("minFreeKbytesFactor", factor, MIN_FREE, min_free_kb(capacity_kb, factor), inputs)
    for field, name in _AS_SET.items():
        value = getattr(stated, field)
        if value is not None:
            yield KernelSetting(json_name(field), value, name, value, {FORMULA: "given", "value": value})
    for feature, is_on in (stated.sched_features or {}).items():
        given: Inputs = {FORMULA: "given", "value": int(is_on)}
        shown = "true" if is_on else "false"
        yield KernelSetting(f"schedFeatures.{feature}", shown, f"{FEATURES}@{feature}", int(is_on), given)


def _untold(stated: SystemStrategy, policy: EffectivePolicy) -> Iterator[tuple[str, str]]:
    """Yields the files whose value cannot be worked out, each with the reason."""
    factor = stated.min_free_kbytes_factor
    if factor is not None and policy.host.memory_total_bytes < 1024:
        yield MIN_FREE, _left_out("minFreeKbytesFactor", factor, f"the node's memory is not known{_STAYS}")
    names = {"minFreeKbytesFactor": MIN_FREE, **{json_name(field): name for field, name in _AS_SET.items()}}
    set_elsewhere = {setting.field for setting in _settings(stated, policy.host)}
    for field in sorted(policy.bad_settings - set_elsewhere):
        section, _, feature = field.partition(".")
        name = f"{FEATURES}@{feature}" if section == "schedFeatures" else names.get(field, "")
        if _is_row(name) and files.row(name).name in policy.host.system_files:
            yield name, f"systemStrategy.{field} is wrong{_STAYS}"


def _is_row(name: str) -> bool:
    try:
        return bool(files.row(name))
    except UnknownRow:
        return False


def _without_file(setting: KernelSetting, host: HostFacts) -> str:
    """Returns why the setting has no effect on this kernel; "" if it has one."""
    if not _is_row(setting.name):
        return _left_out(setting.field, setting.stated, "this is no name of a scheduler feature")
    row = files.row(setting.name)
    if row.name not in host.system_files:
        why = "only vendor kernels have" if row.vendor else "this kernel, or its debugfs, does not have"
        return _left_out(setting.field, setting.stated, f"{why} {row.name}")
    if row.takes and setting.name not in host.system_files and _lists_features(host):
        return _left_out(setting.field, setting.stated, f"this kernel has no feature {row.qualifier}")
    return ""


def _refused(setting: KernelSetting, host: HostFacts) -> str:
    """Returns why the file cannot hold the value; "" if it can."""
    try:
        files.row(setting.name).check(setting.value, host.cgroup_version)
    except ValueRefused as error:
        return _left_out(setting.field, setting.stated, f"{error}{_STAYS}")
    return ""


def _lists_features(host: HostFacts) -> bool:
    """Could the scheduler's features be read? If not, the write itself reports what is wrong."""
    return any(name.startswith(f"{FEATURES}@") for name in host.system_files)


def _left_out(field: str, stated: object, why: str) -> str:
    return f"systemStrategy.{field} {stated} is left out: {why}"
