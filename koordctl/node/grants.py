"""Finds what koord-qosd's unit has to allow on a node: the features that are on there, and the drop-in that says so.

A feature is on as koord-qosd itself decides: by its command line's gates and by the rules file, or by the last good
policy that it keeps where that file says nothing; where it follows a cluster, the NodeSLO that it keeps lies over that.
A kernel file in the undo record stays writable too, since koord-qosd has to put it back. Invariant: only files of the
node are read, so that a recorded node can be asked as well.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from koord.host import granted, undo
from koord.host.cgroup import Tree
from koord.host.claims import flag
from koord.model import grants, slo, slo_defaults
from koord.model.featuregates import NO_SETTINGS, Settings
from koord.model.grants import GRANTS, GrantInputs
from koord.model.locations import (
    CGROUP_ROOT,
    LAST_NODE_SLO_FILE_NAME,
    LAST_POLICY_FILE_NAME,
    RULES_FILE,
    STATE_DIRECTORY,
    UNDO_RECORD,
)
from koord.model.schema import SchemaError
from koord.model.slo import NodeSLOSpec
from koord.model.slo_extensions import CPUSuppressBy, CPUSuppressSettings
from koord.service import optionvalues
from koordctl.node import settings, units
from koordctl.node.files import NodeFiles

DROP_IN = f"{units.LOCAL}/{units.QOSD}.d/50-koord-grants.conf"
KEPT_POLICY = f"{STATE_DIRECTORY}/{LAST_POLICY_FILE_NAME}"
KEPT_NODE_SLO = f"{STATE_DIRECTORY}/{LAST_NODE_SLO_FILE_NAME}"
_HEAD = (
    "# Written by koordctl install: what the features that are on need. After a change of the rules, run it again.\n"
)
Paths = Mapping[str, tuple[str, ...]]
"""By feature, the kernel files that its grant is about and that this kernel has."""


def wanted(node: NodeFiles) -> Paths:
    """Returns the grants that the node needs."""
    arguments = _arguments(node)
    rules = settings.yaml_file(node, flag(arguments, "rules-file") or RULES_FILE)
    if not rules.content:
        rules = settings.yaml_file(node, KEPT_POLICY)
    features = rules.at("node", "features")
    kept = settings.yaml_file(node, KEPT_NODE_SLO).at("spec") if _option(node, arguments, "kubeconfig") else None
    policy = slo_defaults.in_force(slo_defaults.overlaid(_spec(rules.at("spec")), _spec(kept)))
    by = rules.text("node", "cpuSuppress", "policy") or (policy.koord.cpu_suppress or CPUSuppressSettings()).policy
    on = grants.wanted(GrantInputs(policy, by == CPUSuppressBy.PRESSURE), _flags(node, arguments), _settings(features))
    held = undo.held_rows(node.at(UNDO_RECORD))
    tree = Tree(2, node.at(CGROUP_ROOT), {}, proc=node.at("/proc"), sys=node.at("/sys"))
    return {
        name: tuple(node.own(path) for path in granted.files_of(grant, tree))
        for name, grant in GRANTS.items()
        if name in on or held.intersection((*grant.rows, *grant.attributes))
    }


def drop_in(found: Paths) -> str:
    """Returns the text of the drop-in; "" if nothing is to be allowed that the unit does not allow itself."""
    lines = []
    for name, paths in found.items():
        grant = GRANTS[name]
        allowed = []
        if grant.capabilities:
            allowed.append(f"CapabilityBoundingSet={' '.join(each.name for each in grant.capabilities)}")
        if paths:
            allowed.append(f"ReadWritePaths={' '.join(f'-{path}' for path in paths)}")
        lines += [f"# {name}: {grant.purpose}", *allowed] if allowed else []
    return "".join((_HEAD, "[Service]\n", *(f"{line}\n" for line in lines))) if lines else ""


def _arguments(node: NodeFiles) -> list[str]:
    """Returns the arguments that the unit starts koord-qosd with."""
    unit = units.find(node, units.QOSD)
    commands = unit.values("Service", "ExecStart") if unit is not None else ()
    try:
        return shlex.split(commands[-1]) if commands else []
    except ValueError:
        return []


def _flags(node: NodeFiles, arguments: list[str]) -> Settings:
    """Returns the feature gates; koord-qosd does not start with a bad one."""
    try:
        return optionvalues.switches(_option(node, arguments, "feature-gates"))
    except ValueError:
        return NO_SETTINGS


def _option(node: NodeFiles, arguments: list[str], name: str) -> str:
    """Returns an option of the command line, or of the file that it names."""
    text, config = flag(arguments, name), flag(arguments, "config")
    if text is not None:
        return text
    return settings.yaml_file(node, config).text(name) if config else ""


def _settings(features: Any) -> Settings:
    if not isinstance(features, dict):
        return NO_SETTINGS
    return {name: is_on for name, is_on in features.items() if isinstance(is_on, bool)}


def _spec(spec: Any) -> NodeSLOSpec:
    """Decodes ``spec``; a bad value in it counts as not set, as for koord-qosd."""
    try:
        return slo.decode_spec(spec or {}, bad=lambda error: None)
    except SchemaError:
        return NodeSLOSpec()
