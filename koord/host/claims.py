"""What the configurations of kubelet and of the runtime claim about the cgroup layout: driver and cgroup root.

Pure functions from texts: kubelet's arguments, its configuration (YAML or /configz's JSON, with drop-ins), the
runtime's (containerd's or cri-o's TOML, or the JSON of ``crictl info``). A text that cannot be read is a problem with
its source and the reason, and claims nothing; nothing here raises.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from koord.model.cgroup_parent import CgroupStyle

_STYLES = {style.value: style for style in CgroupStyle}


@dataclass(frozen=True, slots=True)
class Claim:
    """``source`` says that ``name`` ("driver", "cgroup root", "cgroups per QoS") is ``value``."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Claims:
    """All claims of one kind of source, the strongest first, and the problems of its texts."""

    claims: tuple[Claim, ...] = ()
    problems: tuple[str, ...] = ()

    def __add__(self, other: Claims) -> Claims:
        return Claims(self.claims + other.claims, self.problems + other.problems)

    def of(self, name: str) -> list[Claim]:
        return [claim for claim in self.claims if claim.name == name]


DRIVER, CGROUP_ROOT, PER_QOS = "driver", "cgroup root", "cgroups per QoS"
_FLAGS = {"cgroup-driver": DRIVER, "cgroup-root": CGROUP_ROOT, "cgroups-per-qos": PER_QOS}
_KEYS = {"cgroupDriver": DRIVER, "cgroupRoot": CGROUP_ROOT, "cgroupsPerQOS": PER_QOS}


def flag(args: Sequence[str], name: str) -> str | None:
    """The last value of ``--name=value`` or ``--name value`` in ``args``; None without one."""
    found = None
    for index, arg in enumerate(args):
        given, equals, value = arg.lstrip("-").partition("=")
        if arg.startswith("-") and given == name:
            found = value if equals else args[index + 1] if index + 1 < len(args) else ""
    return found


def of_kubelet_args(args: Sequence[str]) -> Claims:
    """kubelet's flags, which override its file."""
    said = ((name, flag(args, given), given) for given, name in _FLAGS.items())
    return _checked([Claim(name, value, f"kubelet's --{given}") for name, value, given in said if value])


def of_kubelet_config(source: str, text: str) -> Claims:
    """A KubeletConfiguration in YAML or JSON, or what /configz answers."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return Claims(problems=(f"{source}: not YAML: {' '.join(str(error).split())}",))
    if isinstance(document, dict) and isinstance(document.get("kubeletconfig"), dict):
        document = document["kubeletconfig"]
    if not isinstance(document, dict):
        return Claims(problems=(f"{source}: not a kubelet configuration",))
    found = ((name, document.get(key)) for key, name in _KEYS.items())
    return _checked([Claim(name, _text(value), source) for name, value in found if value not in (None, "")])


def of_runtime(source: str, text: str) -> Claims:
    """containerd's or cri-o's configuration (TOML), or the JSON of ``crictl info``."""
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        return Claims(problems=(f"{source}: neither TOML nor JSON: {error}",))
    return _checked([Claim(DRIVER, value, source) for value in _drivers(document)])


def of_runtime_driver(source: str, driver: str) -> Claims:
    """The driver that CRI's RuntimeConfig names."""
    return _checked([Claim(DRIVER, driver, source)])


def _checked(claims: Sequence[Claim]) -> Claims:
    known = tuple(claim for claim in claims if claim.name != DRIVER or claim.value in _STYLES)
    wrong = tuple(f"{claim.source}: unknown cgroup driver {claim.value!r}" for claim in claims if claim not in known)
    return Claims(known, wrong)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _drivers(document: Any) -> Iterator[str]:
    """Returns the driver of the default runtime class, at whatever depth of the document the runtimes are."""
    for table in _tables(document):
        manager = table.get("cgroup_manager")
        if isinstance(manager, str):
            yield manager
        runtimes = table.get("runtimes")
        if isinstance(runtimes, Mapping):
            default = table.get("default_runtime_name") or table.get("defaultRuntimeName") or "runc"
            runtime = runtimes.get(default)
            options = runtime.get("options") if isinstance(runtime, Mapping) else None
            if isinstance(options, Mapping):
                yield "systemd" if options.get("SystemdCgroup") is True else "cgroupfs"


def _tables(document: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(document, Mapping):
        yield document
        for value in document.values():
            yield from _tables(value)
