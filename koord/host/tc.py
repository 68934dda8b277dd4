"""Which traffic control this kernel has: queueing disciplines, classifiers and the ifb device, without touching a link.

The kernel's own configuration is the best witness (/proc/config.gz, /boot/config-RELEASE), then what is loaded
(/proc/modules), then what could be loaded (modules.builtin, modules.dep). Invariant: nothing here loads a module; no
witness at all is UNKNOWN, never ABSENT.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType


class Availability(StrEnum):
    BUILT_IN = "built in"
    LOADED = "loaded"
    LOADABLE = "loadable"
    ABSENT = "absent"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _Feature:
    option: str
    module: str


FEATURES: Mapping[str, _Feature] = MappingProxyType(
    {
        "htb": _Feature("CONFIG_NET_SCH_HTB", "sch_htb"),
        "tbf": _Feature("CONFIG_NET_SCH_TBF", "sch_tbf"),
        "fq": _Feature("CONFIG_NET_SCH_FQ", "sch_fq"),
        "clsact": _Feature("CONFIG_NET_SCH_INGRESS", "sch_ingress"),
        "ifb": _Feature("CONFIG_IFB", "ifb"),
        "u32": _Feature("CONFIG_NET_CLS_U32", "cls_u32"),
        "cgroup": _Feature("CONFIG_NET_CLS_CGROUP", "cls_cgroup"),
        "flower": _Feature("CONFIG_NET_CLS_FLOWER", "cls_flower"),
        "bpf": _Feature("CONFIG_NET_CLS_BPF", "cls_bpf"),
        "mirred": _Feature("CONFIG_NET_ACT_MIRRED", "act_mirred"),
        "police": _Feature("CONFIG_NET_ACT_POLICE", "act_police"),
    }
)
"""What network QoS may use, by tc(8)'s names. ``clsact`` and ``ingress`` are one module."""


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The texts that tell; None = not there. ``modules`` is /proc/modules, absent on a kernel that loads none."""

    config: str | None = None
    modules: str | None = None
    builtin: str | None = None
    dependencies: str | None = None


def witnesses(proc: Path, lib_modules: Path, boot: Path, release: str) -> Witnesses:
    """Read them for kernel ``release`` (uname -r); below /proc, /lib/modules and /boot."""
    config = _unpacked(proc / "config.gz")
    return Witnesses(
        config if config is not None else _text(boot / f"config-{release}"),
        _text(proc / "modules"),
        _text(lib_modules / release / "modules.builtin"),
        _text(lib_modules / release / "modules.dep"),
    )


def availability(witnesses: Witnesses) -> Mapping[str, Availability]:
    """Of each of FEATURES."""
    loaded = {line.split(maxsplit=1)[0] for line in (witnesses.modules or "").splitlines() if line.strip()}
    return {name: _of(feature, witnesses, loaded) for name, feature in FEATURES.items()}


def _of(feature: _Feature, witnesses: Witnesses, loaded: set[str]) -> Availability:
    if feature.module in loaded:
        return Availability.LOADED
    if witnesses.config is not None:
        chosen = re.search(rf"^{feature.option}=([ym])$", witnesses.config, re.MULTILINE)
        if chosen is None:
            return Availability.ABSENT
        return Availability.BUILT_IN if chosen.group(1) == "y" else Availability.LOADABLE
    if witnesses.builtin is None and witnesses.dependencies is None:
        return Availability.UNKNOWN
    file = re.compile(rf"(?:^|/){feature.module}\.ko", re.MULTILINE)
    if file.search(witnesses.builtin or ""):
        return Availability.BUILT_IN
    return Availability.LOADABLE if file.search(witnesses.dependencies or "") else Availability.ABSENT


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None


def _unpacked(file: Path) -> str | None:
    try:
        return gzip.decompress(file.read_bytes()).decode("ascii", "replace")
    except (OSError, EOFError, zlib.error):  # gzip.BadGzipFile is an OSError
        return None
