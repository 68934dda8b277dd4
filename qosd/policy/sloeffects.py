"""Says which fields of the policy have no effect on this node: one sentence for each object of NodeSLO that has such.

A field is told if somebody set it to another value than the default: a NodeSLO that the cluster renders spells out
every default, and asks for nothing by that. The fields of an object that is switched off in so many words
(``enable: false``) are not told. While the host is not known (kubelet has made no cgroup yet), it lacks no file.

Invariant: pure; a field by which at least one hook or strategy acts is not told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from koord.host.files import row
from koord.host.kernelfile import Probe
from koord.model import leaves, schema, slo_defaults
from koord.model.slo import NodeSLOSpec
from koord.model.slo_extensions import EXTENSIONS
from qosd.model.policy import EffectivePolicy
from qosd.policy import slofields
from qosd.policy.slofields import GAPS_BY_VALUE, SWITCHES, Gap, Use

_NOTHING: tuple[object, ...] = ({}, ())


def without_effect(stated: NodeSLOSpec, policy: EffectivePolicy) -> Iterator[str]:
    """Yields what of ``stated``, the checked document, has no effect under ``policy`` on this node, and why."""
    picture = _picture(stated, policy)
    found: dict[tuple[str, str], list[leaves.LeafValue]] = {}
    for setting in leaves.of_value(stated):
        why = "" if picture.is_default(setting) else picture.why_idle(setting)
        if why:
            found.setdefault((_parent(setting.path), why), []).append(setting)
    for (parent, why), settings in found.items():
        yield f"{_subject(parent, settings)}: {why}"
    yield from (
        f"spec.extensions.{key} has no effect: nobody reads it on a node"
        for key in stated.extensions or ()
        if key not in EXTENSIONS
    )


@dataclass(frozen=True, slots=True)
class _Picture:
    """``stated``, ``defaults`` and ``merged``: values by path."""

    stated: Mapping[str, object]
    defaults: Mapping[str, object]
    merged: Mapping[str, object]
    policy: EffectivePolicy

    def is_default(self, setting: leaves.LeafValue) -> bool:
        """Returns whether the field is empty or says the default."""
        is_said = setting.path in self.defaults and self.defaults[setting.path] == setting.value
        return is_said or setting.value in _NOTHING

    def why_idle(self, setting: leaves.LeafValue) -> str:
        """Returns why nothing follows from the field; "" if something does, or the object is meant to be off."""
        field = slofields.pattern(setting.path)
        effect = GAPS_BY_VALUE.get(field, {}).get(str(setting.value)) or slofields.effect_of(setting.path)
        switch, off = self._switch(setting.path)
        is_switch = switch in ("", setting.path)
        if effect is None or (not is_switch and self.stated.get(switch) == off):
            return ""
        if isinstance(effect, Gap):
            return effect.why
        if not is_switch and self.merged.get(switch) == off:
            return f"{_name(switch)} is {_shown(off)}"
        reasons = [next(self._lacking(use, _parent(setting.path)), "") for use in effect]
        return "" if "" in reasons else "; ".join(dict.fromkeys(reasons))

    def _switch(self, path: str) -> tuple[str, object]:
        """Returns the path of the switch of the field's object, and its value that is off; ("", None) without one."""
        field = slofields.pattern(path)
        for place, (name, off) in SWITCHES.items():
            if field.startswith(f"{place}."):
                depth = place.count(".") + 1
                return ".".join((*path.split(".")[:depth], name)), off
        return "", None

    def _lacking(self, use: Use, parent: str) -> Iterator[str]:
        """Yields what keeps ``use`` from acting by the object at ``parent``."""
        gate = self.policy.gate(use.gate) if use.gate else None
        if gate is not None and not gate.is_on:
            yield f"feature gate {use.gate} is off ({gate.source})"
        if use.by and not self.policy.enabled(use.by):
            yield f"hook {use.by} is off (node.hooks)"
        for name, values in use.when.items():
            if (value := self.merged.get(f"{parent}.{name}")) not in values:
                yield f"{name} is {_shown(value)}"
        missing = [name for name in use.fields if self.merged.get(f"{parent}.{name}") is None]
        if missing:
            yield f"it needs {' and '.join(missing)} too"
        if use.unless and f"{parent}.{use.unless}" in self.merged:
            yield f"{use.unless} takes its place"
        if use.by_group and (group := _resctrl_group(parent)) not in self.policy.host.resctrl_groups:
            yield f"there is no resctrl group {group}"
        if use.files and not any(map(self._has, use.files)):
            files = f"no {use.files[0]}" if len(use.files) == 1 else f"none of {', '.join(use.files)}"
            by_vendors = ", which only vendor kernels have" if all(map(self._is_vendors, use.files)) else ""
            yield f"this node has {files}{by_vendors}"

    def _has(self, name: str) -> bool:
        found, host = row(name), self.policy.host
        if found.file_name(host.cgroup_version, for_write=True) is None:
            return False
        return found.probe is Probe.ASSUMED or host.files is None or name in host.files

    def _is_vendors(self, name: str) -> bool:
        found, version = row(name), self.policy.host.cgroup_version
        return found.file_name(version, for_write=True) is not None and version in found.vendor_on


def _picture(stated: NodeSLOSpec, policy: EffectivePolicy) -> _Picture:
    defaults = slo_defaults.defaults()
    said, by_default, together = (
        dict(leaves.of_value(spec)) for spec in (stated, defaults, schema.overlay(defaults, stated))
    )
    return _Picture(said, by_default, together, policy)


def _resctrl_group(path: str) -> str:
    """Returns the resctrl group of the class whose settings are at ``path``: ``LSR`` of ``lsrClass``."""
    return path.split(".")[1].removesuffix("Class").upper()


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _subject(parent: str, settings: list[leaves.LeafValue]) -> str:
    if len(settings) == 1:
        setting = settings[0]
        return f"spec.{setting.path}: {_shown(setting.value)} has no effect"
    return f"spec.{parent}: {', '.join(_name(setting.path) for setting in settings)} have no effect"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "not set" if value is None else schema.clip(value if isinstance(value, int | str | Mapping) else str(value))
