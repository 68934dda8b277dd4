"""What the policy asks for and nobody does: one sentence for each object of NodeSLO that has such fields.

Told is what somebody set otherwise than it is by default: a NodeSLO that the cluster renders spells out every default,
and asks for nothing by that. An object that is switched off in so many words (``enable: false``) is not told either.
What an unknown host may still have (kubelet has made no cgroup yet) is not held against a field.

Invariant: pure; a field that has an effect by anybody who acts by it is not told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from koord.host.files import row
from koord.host.kernelfile import Probe
from koord.model import leaves, schema, slo_defaults
from koord.model.slo import NodeSLOSpec
from koord.model.slo_extensions import EXTENSIONS
from qosd.model.policy import EffectivePolicy
from qosd.policy.slofields import CLASSES, EXCEPTIONS, FIELDS, STRATEGY, SWITCHES, Effect, Gap, SLOField, Use

_ROWS: Mapping[str, SLOField] = MappingProxyType({each.path: each for each in FIELDS})
_OF_CLASS = re.compile(rf"{STRATEGY}\.(?:{'|'.join(CLASSES)})(?=\.)")
_ITEM = re.compile(r"\[\d+\]")
_NOTHING: tuple[object, ...] = ({}, ())


def row_of(path: str) -> SLOField | None:
    """The row of the field at ``path``, of whatever class and item; None for what no struct has."""
    return _ROWS.get(_pattern(path))


def effect_of(field: SLOField, path: str) -> Effect:
    """Who acts by the field at ``path``, or why nobody does."""
    prefixes = (path[: match.start()] for match in re.finditer(r"\.|$", path))
    return next((EXCEPTIONS[prefix] for prefix in prefixes if prefix in EXCEPTIONS), field.effect)


def without_effect(stated: NodeSLOSpec, policy: EffectivePolicy) -> Iterator[str]:
    """What of ``stated``, as it was said and checked, has no effect by ``policy`` on this node, and why."""
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
        """Does it say what applies anyway?"""
        is_said = setting.path in self.defaults and self.defaults[setting.path] == setting.value
        return is_said or setting.value in _NOTHING

    def why_idle(self, setting: leaves.LeafValue) -> str:
        """Why nothing follows from the field, "" if something does or the object is meant to be off."""
        field = row_of(setting.path)
        if field is None:
            return ""
        switch, off = self._switch(setting.path)
        if switch and switch != setting.path and self.stated.get(switch) == off:
            return ""
        gap = field.gaps.get(str(setting.value))
        effect = gap or effect_of(field, setting.path)
        if isinstance(effect, Gap):
            return effect.why
        if switch and switch != setting.path and self.merged.get(switch) == off:
            return f"{_name(switch)} is {_shown(off)}"
        reasons = [self._why_not(use, setting.path) for use in effect]
        return "" if "" in reasons else "; ".join(dict.fromkeys(reasons))

    def _switch(self, path: str) -> tuple[str, object]:
        """The path of the switch of the object that the field is in, and its value that is off; ("", None) = none."""
        pattern = _pattern(path)
        for place, (name, off) in SWITCHES.items():
            if pattern.startswith(f"{place}."):
                depth = place.count(".") + 1
                return ".".join((*path.split(".")[:depth], name)), off
        return "", None

    def _why_not(self, use: Use, path: str) -> str:
        """What ``use`` lacks; "" = nothing."""
        parent, checks = _parent(path), (self._shut, self._unmet, self._absent)
        return next((why for check in checks if (why := check(use, parent))), "")

    def _shut(self, use: Use, parent: str) -> str:
        """Who keeps it from acting: a feature gate, or the switch of a hook."""
        if use.gate:
            is_on, source = self.policy.gate(use.gate)
            if not is_on:
                return f"feature gate {use.gate} is off ({source})"
        return "" if not use.by or self.policy.enabled(use.by) else f"hook {use.by} is off (node.hooks)"

    def _unmet(self, use: Use, parent: str) -> str:
        """What of the same object keeps it from acting."""
        for name, values in use.when.items():
            value = self.merged.get(f"{parent}.{name}")
            if value not in values:
                return f"{name} is {_shown(value)}"
        missing = [name for name in use.fields if self.merged.get(f"{parent}.{name}") is None]
        if missing:
            return f"it needs {' and '.join(missing)} too"
        return f"{use.unless} takes its place" if use.unless and f"{parent}.{use.unless}" in self.merged else ""

    def _absent(self, use: Use, parent: str) -> str:
        """What the node lacks for it."""
        if use.by_group:
            group = resctrl_group(parent)
            return "" if group in self.policy.host.resctrl_groups else f"there is no resctrl group {group}"
        if not use.files or any(self._has(name) for name in use.files):
            return ""
        files = f"no {use.files[0]}" if len(use.files) == 1 else f"none of {', '.join(use.files)}"
        by_vendors = ", which only vendor kernels have" if all(map(self._is_vendors, use.files)) else ""
        return f"this node has {files}{by_vendors}"

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


def resctrl_group(path: str) -> str:
    """The name of the resctrl group of the class whose settings are at ``path``: ``LSR`` of ``lsrClass``."""
    return path.split(".")[1].removesuffix("Class").upper()


def _pattern(path: str) -> str:
    return _ITEM.sub("[]", _OF_CLASS.sub(f"{STRATEGY}.*", path))


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
