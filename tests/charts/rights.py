"""What each account may do by the table of docs/security.md, and by the roles of manifests and templates."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from koord.model.locations import NAMESPACE
from release.chart import CHART, ROOT
from tests.support import docpages

ALWAYS = ""
CLUSTER = "the cluster"
CONDITIONS: Mapping[str, str] = {
    "koord-manager": ALWAYS,
    "koord-manager-nodelink": "NodeLink",
    "koord-manager-evictions": "DaemonSet, NodeLink",
    "koord-manager-colocation-profile-controller": "profiles",
    "koord-scheduler": "scheduler",
    "koordlet": "DaemonSet",
    "koordlet-kubelet": "DaemonSet, kubelet",
    "koordlet-nodelink": "DaemonSet, NodeLink",
    "koordlet-pods": "DaemonSet, listPods",
    "koordlet-nodes": "units",
    "koordinator-uninstall": "uninstallation",
}
"""By the name of a role: what has to be so for anybody to have it, as the table says it."""


class Right(NamedTuple):
    """``where``: a namespace or CLUSTER. ``name``: of the only object; "" = of any. ``only_with``: "" = always."""

    account: str
    where: str
    resource: str
    name: str
    verb: str
    only_with: str = ALWAYS

    def holds(self, conditions: Iterable[str]) -> bool:
        return {*filter(None, self.only_with.split(", "))} <= {*conditions}


def table() -> list[str]:
    """The rows of the page."""
    below = docpages.page("security.md").partition("\n| Account | In | Resource |")[2]
    return re.findall(r"^\| .* \|$", below.partition("\n\n")[0], re.MULTILINE)


def of_table() -> set[Right]:
    cells = ([cell.strip(" `") for cell in row.strip("|").split("|")] for row in table())
    return {
        Right(account, where, resource, name, verb, only_with)
        for account, where, resource, names, verbs, only_with in cells
        for name in names.replace("`", "").split(", ")
        for verb in verbs.split(", ")
    }


def of_roles(namespace: str = NAMESPACE) -> set[Right]:
    """Of every role that manifests and templates bind, whenever that is."""
    documents = [*_documents()]
    roles = {(each["kind"], each["metadata"]["name"]): each["rules"] for each in documents if "rules" in each}
    return {
        Right(subject["name"], where, resource, name, verb, CONDITIONS[role])
        for each in documents
        if "roleRef" in each
        for kind, role in [(each["roleRef"]["kind"], each["roleRef"]["name"])]
        for where in [CLUSTER if kind == "ClusterRole" else namespace]
        for subject in each["subjects"]
        for resource, name, verb in _rights(roles[kind, role])
    }


def rows(rights: Iterable[Right]) -> list[str]:
    """As the page has them."""
    verbs = defaultdict[tuple[str, ...], set[str]](set)
    for right in rights:
        verbs[right.account, right.where, right.resource, right.name, right.only_with].add(right.verb)
    names = defaultdict[tuple[str, ...], list[str]](list)
    for (account, where, resource, name, only_with), may in sorted(verbs.items()):
        names[account, where, resource, ", ".join(sorted(may)), only_with].append(name)
    return [
        f"| {account} | {where} | `{resource}` |{_codes(names[key])}| {may} |{f' {only_with} ' if only_with else ' '}|"
        for key in sorted(names)
        for account, where, resource, may, only_with in [key]
    ]


def _codes(names: Iterable[str]) -> str:
    """A cell."""
    return f" {', '.join(f'`{name}`' for name in names if name)} ".replace("  ", " ")


def _rights(rules: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    yield from ((qualified(resource, group), name, verb) for verb in rule["verbs"])


def qualified(resource: str, group: str) -> str:
    """As kubectl writes it: ``nodemetrics.slo.koordinator.sh/status``."""
    plural, slash, subresource = resource.partition("/")
    return f"{plural}.{group}{slash}{subresource}" if group else resource


def _documents() -> Iterator[Mapping[str, Any]]:
    """Roles and bindings. A template's have braces in places that YAML can read past."""
    files: list[Path] = [
        *sorted(ROOT.glob("manifests/koord*/*.yaml")),
        *sorted(ROOT.glob("manifests/optional/*.yaml")),
        CHART / "templates" / "uninstall.yaml",
        CHART / "templates" / "koordlet" / "pods.yaml",
    ]
    for file in files:
        for document in re.split(r"^---\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE):
            if re.search(r"^kind: (Cluster)?Role(Binding)?$", document, re.MULTILINE):
                plain = re.sub(r"^ *\{\{.*\}\}\n", "", document, flags=re.MULTILINE)
                yield yaml.safe_load(re.sub(r"\{\{.*?\}\}", NAMESPACE, plain))
