"""docs/node-slo.md: every field of NodeSLO with default, bounds, meaning, who acts by it, and what that takes."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import inspect

from koord.host.files import ROWS
from koord.host.kernelfile import KernelFile
from koord.model import leaves, slo, slo_defaults, slo_rules
from koord.model.percent import PercentOrQuantity
from koord.model.quantity import Quantity
from koord.model.schema import json_name
from koord.model.slo_rules import FieldPair
from qosd.metrics import Metrics
from qosd.model.policy import HostFacts
from qosd.policy.slofields import (
    APPLICATION,
    BURST,
    CLASSES,
    EXCEPTIONS,
    GAPS_BY_VALUE,
    MEANINGS,
    STRATEGY,
    SYSTEM,
    THRESHOLDS,
    Effect,
    Gap,
    Use,
    effect_of,
    pattern,
)
from qosd.policy.source import PolicySource
from qosd.strategies import speakers
from release.pages.markdown import NONE, code, table

NAME = "node-slo.md"
_CLASS = f"{STRATEGY}.*"
_POD_CLASSES = CLASSES[:4]
_CONCERNS = ("cpuQOS", "memoryQOS", "resctrlQOS", "blkioQOS", "networkQOS")
_HEAD = ("Field", "Default", "Bounds", "What it says", "Who acts", "Gate", "Kernel files, and what else it takes")
_CLASS_HEAD = ("Field", "LSR, LSE", "LS", "BE", "SYSTEM", "off", *_HEAD[2:])
_KOORD = "extensions.koord"
_MOST_FILES = 4
_INT32 = (-(2**31), 2**31 - 1)

_INTRODUCTION = """\
# NodeSLO, field by field

NodeSLO is the cluster's policy for one node. koord-qosd reads it from `spec` of its [rules file](qosd.md#rules), where
you can paste `kubectl get nodeslo NODE -o yaml`. `make docs` makes this page from the code that reads NodeSLO.

* [How it is read](#how-it-is-read)
* [Rules between fields](#rules-between-fields)
* [What has no effect](#what-has-no-effect)
* [{thresholds}](#{thresholds_anchor})
* [{strategy}](#{strategy_anchor})
* [{burst}](#{burst_anchor})
* [{system}](#{system_anchor})
* [hostApplications](#hostapplications)
* [extensions](#extensions)

## How it is read

Fields that are set override the defaults, one by one; a list replaces the default list. Then neutral values (the column
*off*) replace `cpuQOS`, `memoryQOS` and `resctrlQOS` of `lsrClass`, `lsClass` and `beClass` that are not enabled, so
that switching them off puts the files back. A value out of its bounds, an unknown key and fields that contradict each
other are warnings and count as not set; the rest of the file counts. Keys may be written in any case. `null` counts as
not set, and so does `""` for a choice.

A default of {none} means "not set": no file is written for it. Percentages are whole numbers. *Who acts* names a
[hook](qosd.md#what-is-edited) or a strategy (`koordctl node` lists them). The last column has the kernel files, and
what the field needs besides a kernel that has them.
"""

_EFFECTS = """\
## What has no effect

If a field differs from its default and no hook or strategy acts by it on this node, there is a warning in the log, in
`koordctl pods` and in `koordctl node`. It lasts until the field, the kernel or the gate changes. Fields of an object
with `enable: false` bring no warning.

In the tables, *not yet* means that Koord does not act by the field yet, and *never* that it will not. On a stock kernel
with cgroup v1, these rules

```yaml
{rules}```

bring these warnings:

```
{warnings}
```
"""
_EXAMPLE = """\
spec:
  resourceUsedThresholdWithBE: {enable: true, memoryEvictThresholdPercent: 80}
  resourceQOSStrategy:
    policies: {netQOSPolicy: terway-qos}
    lsClass:
      cpuQOS: {enable: true}
      networkQOS: {enable: true, egressRequest: 60}
    beClass:
      memoryQOS: {lowLimitPercent: 50}
      resctrlQOS: {enable: true, catRangeEndPercent: 20}
      networkQOS: {enable: true, egressRequest: 50}
  cpuBurstStrategy: {policy: auto, cfsQuotaBurstPercent: 50}
"""
_STOCK_V1 = HostFacts(1, files=frozenset({"cpu.idle", "cpu.max.burst"}))

_EXTENSIONS = """\
## extensions

A free map in which each key belongs to one component. `extensions.koord` is Koord's own, for settings without a field
in Koordinator. Its bounds, unknown keys and errors are checked as above. In a cluster set it by `koord-config` of the
ConfigMap `slo-controller-config`, with `clusterStrategy` and `nodeStrategies` like the other keys there. koord-manager
changes no other extension of a NodeSLO; a node warns that it reads none of them.

```yaml
  koord-config: |
    {"clusterStrategy": {"cpuSuppress": {"policy": "pressure"}}}
```
"""


def text() -> str:
    parts = [
        _introduction(),
        _rules(),
        _effects(),
        _section(THRESHOLDS, "When best-effort pods are suppressed, and when pods are evicted.", THRESHOLDS),
        _strategy(),
        _section(BURST, "Bursts of containers of LS, SYSTEM and unlabelled pods.", BURST),
        _section(SYSTEM, "Kernel parameters of the node.", SYSTEM),
        _section(
            "hostApplications",
            "Process groups of the host that are no pods: a list. Each has the settings of its class.",
            APPLICATION,
        ),
        _extensions(),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def _introduction() -> str:
    names = {"thresholds": THRESHOLDS, "strategy": STRATEGY, "burst": BURST, "system": SYSTEM}
    anchors = {f"{name}_anchor": title.lower() for name, title in names.items()}
    return _INTRODUCTION.format(none=NONE, **names, **anchors)


def _rules() -> str:
    pairs = [*((THRESHOLDS, pair) for pair in slo_rules.THRESHOLDS), (f"{STRATEGY}.*.resctrlQOS", slo_rules.CACHE)]
    lines = [f"* {_pair(path, pair)}" for path, pair in pairs]
    return "\n".join((
        "## Rules between fields\n",
        "These apply beyond the bounds of each field. Fields that break a rule are a warning, and count as not set.\n",
        *lines,
        "* `networkQOS`: a request is not more than its limit (0: no limit); the requests of `lsrClass`, `lsClass` and",
        "  `beClass` are together not more than 100 %, nor than `totalNetworkBandwidth` where that is known.",
        "* `hostApplications`: every item has a name, and no two the same; `qos` and `priority` are classes.\n",
    ))  # fmt: skip


def _pair(path: str, pair: FieldPair) -> str:
    sign = "<=" if pair.may_equal else "<"
    both = "; both or neither" if pair.is_whole else ""
    return f"`{path}`: `{json_name(pair.lower)}` {sign} `{json_name(pair.upper)}`{both}"


def _effects() -> str:
    return _EFFECTS.format(rules=_EXAMPLE, warnings="\n".join(warnings_of(_EXAMPLE)))


def warnings_of(rules: str) -> Sequence[str]:
    """What koord-qosd says of these rules, on a stock kernel with cgroup v1."""
    with tempfile.TemporaryDirectory() as directory, _silence():
        file = Path(directory) / "qosd-rules.yaml"
        file.write_text(rules, encoding="utf-8")
        source = PolicySource(file, lambda: _STOCK_V1, Metrics())
        source.load()
        return [f"warning: {warning}".replace(str(file), "/etc/koord/qosd-rules.yaml") for warning in source.warnings]


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _section(title: str, about: str, path: str) -> str:
    return f"## {title}\n\n{about}\n\n{_table(path)}"


def _table(path: str) -> str:
    """The fields of the object at ``path``, and below them the reasons of those that have no effect."""
    fields = _fields_below(path)
    return table(_HEAD, [_line(field, kind, path) for field, kind in fields.items()]) + _gaps(fields, path)


def _gaps(fields: Collection[str], parent: str) -> str:
    """Returns why nobody acts by some of ``fields``."""
    by_gap: dict[Gap, list[str]] = {}
    for field in fields:
        name, effect = field.removeprefix(f"{parent}."), effect_of(field)
        if isinstance(effect, Gap):
            by_gap.setdefault(effect, []).append(f"`{name}`")
        for value, gap in GAPS_BY_VALUE.get(field, {}).items():
            by_gap.setdefault(gap, []).append(f"`{name}: {value}`")
    lines = []
    for gap, names in by_gap.items():
        whose = "all of it" if len(names) == len(fields) > 1 else ", ".join(names)
        lines.append(f"* {whose}: {_gap(gap)}")
    return "\n\n" + "\n".join(lines) if lines else ""


def _extensions() -> str:
    return f"{_EXTENSIONS}\n{_table(_KOORD)}" if _fields_below(_KOORD) else _EXTENSIONS


def _strategy() -> str:
    parts = [
        f"## {STRATEGY}\n",
        "`policies`, and settings of each class: `lsrClass` (LSE and LSR pods), `lsClass`, `beClass`, `systemClass`;",
        "of `cgroupRoot`, `blkioQOS` alone. The columns of classes and *off* are defaults.\n",
        f"### policies\n\n{_table(f'{STRATEGY}.policies')}\n",
        *(f"### {concern}\n\n{_class_table(concern)}\n" for concern in _CONCERNS),
    ]
    return "\n".join(parts)


def _class_table(concern: str) -> str:
    path, lines = f"{_CLASS}.{concern}", []
    fields = _fields_below(path)
    for field, kind in fields.items():
        name, _, *rest = _line(field, kind, path)
        defaults = [_default(field.replace("*", cls)) for cls in _POD_CLASSES]
        lines.append([name, *defaults, _neutral(field), *rest])
    excepted = [
        f"* `{place.removeprefix(f'{STRATEGY}.')}`: {_gap(effect)}"
        for place, effect in EXCEPTIONS.items()
        if f".{concern}" in place and isinstance(effect, Gap)
    ]
    below = _gaps(fields, path) or ("\n" if excepted else "")
    return "\n".join([table(_CLASS_HEAD, lines) + below, *excepted])


def _fields_below(path: str) -> dict[str, inspect.Type]:
    """Returns the fields of the object at ``path`` with their types; those of a class as patterns, for all classes."""
    fields = {pattern(leaf.path): leaf.kind for leaf in _LEAVES}
    return {field: kind for field, kind in fields.items() if field.startswith(f"{path}.")}


def _line(field: str, kind: inspect.Type, parent: str) -> list[str]:
    return [f"`{field.removeprefix(f'{parent}.')}`", _default(field), _bounds(kind), MEANINGS[field], *_effect(field)]


def _effect(field: str) -> tuple[str, str, str]:
    """Returns who acts, behind which gates, and what that takes."""
    effect = effect_of(field)
    assert effect is not None
    if isinstance(effect, Gap):
        return f"*{effect.status}*", "", ""
    who = code(name for use in effect for name in _names(use))
    gates = code(use.gate for use in effect if use.gate)
    return who or NONE, gates, _takes(effect)


def _names(use: Use) -> Sequence[str]:
    behind = [each.name for each in speakers() if use.gate and each.gate == use.gate]
    if use.by in behind:
        return [use.by]
    return [*([use.by] if use.by else []), *behind]


def _gap(effect: Effect) -> str:
    assert isinstance(effect, Gap)
    return f"*{effect.status}*: {effect.why}"


def _takes(uses: Sequence[Use]) -> str:
    names = list(dict.fromkeys(name for use in uses for name in use.files))
    files = [_file(ROWS[name]) for name in names] if len(names) <= _MOST_FILES else ["one of the files below"]
    groups = ["the class's resctrl group" for use in uses if use.by_group]
    return "; ".join(dict.fromkeys([*files, *groups, *(need for use in uses for need in use.needs)]))


def _file(row: KernelFile) -> str:
    """The names that the file has, and on which kernels."""
    if row.system is not None:
        names = [f"/{'/'.join(row.system)}"]
    else:
        names = [name for name in (row.v1 and row.v1[1], row.v2) if name]
    if row.vendor:
        where = "vendor kernels"
    elif row.vendor_on == (1,):
        where = "v2; v1 on vendor kernels"
    else:
        where = "v2" if row.system is None and row.v1 is None else ""
    since = f"Linux {row.since}" if row.since and not row.vendor else ""
    notes = ", ".join(filter(None, (since, where)))
    return f"{code(names)} ({notes})" if notes else code(names)


def _default(path: str) -> str:
    return _shown(_DEFAULTS.get(path))


def _neutral(path: str) -> str:
    """What a class that is not enabled has; "" for what is never replaced."""
    concern, name = path.split(".")[2], path.rpartition(".")[2]
    settings = {
        "cpuQOS": slo_defaults.neutral_cpu(),
        "memoryQOS": slo_defaults.neutral_memory(),
        "resctrlQOS": slo_defaults.neutral_resctrl(),
    }.get(concern)
    if settings is None:
        return ""
    values: Mapping[str, object] = {each.path: each.value for each in leaves.of_value(settings)}
    return _shown(values.get(name))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if value is None:
        return NONE
    if isinstance(value, PercentOrQuantity) and value.percent is not None:
        return f"`{value.percent}`"
    return f"`{value}`"


def _bounds(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.BoolType):
        return "`true`, `false`"
    if isinstance(kind, inspect.EnumType):
        return code(member.value for member in kind.cls)
    if isinstance(kind, inspect.IntType):
        return _range(kind)
    custom = getattr(kind, "cls", None)
    if custom is PercentOrQuantity:
        return "0..100, or a quantity as text (`50M`)"
    if custom is Quantity:
        return "a quantity, at least 0"
    return "a map" if isinstance(kind, inspect.DictType) else "text"


def _range(kind: inspect.IntType) -> str:
    low, high = kind.ge, kind.le
    if (low, high) == _INT32:
        return "32 bits"
    if low == _INT32[0]:
        return f"at most {high}"
    return f"{low}..{high}" if high is not None else f"at least {low}"


_LEAVES = [leaf for leaf in slo.every_leaf() if not any(f".{cls}." in leaf.path for cls in CLASSES[1:])]
_DEFAULTS: Mapping[str, object] = {each.path: each.value for each in leaves.of_value(slo_defaults.defaults())}
