"""Writes the parts of the chart that other files already say: ``python -m release.chart`` (``make chart``).

CRDs, rights, PriorityClasses and webhook configurations are plain manifests; the chart has the same, with its values in
their places. It also gets the paths of ``values.yaml``, by which NOTES.txt finds values that do not exist, and in the
schema of the values ``sloControllerConfig``, by the structs. ``--check`` names each file that differs from what would
be written, and fails.

Invariant: a manifest is changed by whole lines and by the name of the namespace alone, so what the chart installs with
its default values is what ``manifests/`` holds. A manifest that would not survive that raises ValueError.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from koord.model.featuregates import ALL_ALPHA, ALL_BETA
from koord.model.featuregates import GATES as NODE_GATES
from koord.model.locations import NAMESPACE
from koord_manager.options import COLOCATION_PROFILE_CONTROLLER, WEBHOOK_GATES
from koord_manager.options import GATES as MANAGER_GATES
from release import valuesschema

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "koordinator"
SCHEMA = "values.schema.json"
_OWN_NAMESPACE = "{{ .Values.installation.namespace }}"
_POLICIES = {
    "mpod-create.koordinator.sh": "pods",
    "melasticquota.koordinator.sh": "elasticquotas",
    "mnode-status.koordinator.sh": "nodeStatus",
    "vpod.koordinator.sh": "pods",
    "velasticquota.koordinator.sh": "elasticquotas",
    "vnode.koordinator.sh": "nodes",
}
"""By webhook: which value of ``webhookConfiguration.failurePolicy`` it follows."""
_SECTIONS = frozenset(
    (
        *("koordlet.resources", "koordlet.nodeAffinity", "koordlet.nodeSelector"),
        *("manager.resources", "manager.nodeAffinity", "manager.nodeSelector"),
        *("scheduler.resources", "scheduler.nodeAffinity", "scheduler.nodeSelector", "scheduler.configuration"),
        *("serviceAccount.annotations", "sloControllerConfig"),
    )
)
"""Values that are maps of the user's own keys."""

_MATCH_CONDITIONS = 'semverCompare ">=1.28-0" .Capabilities.KubeVersion.Version'
"""Older API servers do not know the field, and ask about more."""
_RIGHTS = (
    *("koord-manager/rbac", "koord-manager/secrets", "koord-manager/admission"),
    *("koord-scheduler/rbac", "koord-scheduler/admission"),
    *("koordlet/rbac", "koordlet/admission"),
)
_GUARDS = {
    "koord-scheduler": ".Values.scheduler.enabled",
    "koord-scheduler-events": ".Values.scheduler.enabled",
    "koord-scheduler-quotas": ".Values.scheduler.enabled",
    "koordlet": ".Values.koordlet.enabled",
    "koordlet-kubelet": "and .Values.koordlet.enabled (not .Values.koordlet.listPods)",
    "koordlet-nodelink": "and .Values.koordlet.enabled .Values.manager.nodeLink.port",
    "koordlet-nodes": ".Values.units.enabled",
    "koord-manager-nodelink": ".Values.manager.nodeLink.port",
    "koord-manager-evictions": "and .Values.koordlet.enabled .Values.manager.nodeLink.port",
    "koordinator-webhook-certs": 'include "koord.makesSecret" (list "koordinator-webhook-certs" $)',
    "koordinator-nodelink-certs": (
        'and .Values.manager.nodeLink.port (include "koord.makesSecret" (list "koordinator-nodelink-certs" $))'
    ),
}
"""By the name of an account, a role, a binding, a policy or a Secret: when it is needed. Others are always there."""
_NODE_CLAIMS = 'semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version'
"""In older clusters no token says which node its pod runs on."""
_END = "{{- end }}\n"
_KEPT = "  annotations:\n    helm.sh/resource-policy: keep\n"
_ACCOUNT_ANNOTATIONS = """\
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""


def templates(root: Path = ROOT) -> dict[str, str]:
    """Returns each text by its path below the chart's ``templates``."""
    manifests = root / "manifests"
    made = {f"crds/{file.name}": _crd(_source(file), file.name) for file in sorted((manifests / "crds").glob("*.yaml"))}
    manager = manifests / "koord-manager"
    optional = _source(manifests / "optional" / "colocation-profile-controller.yaml")
    made["koord-manager/profiles.yaml"] = _guarded(_is_on("koord.isOn", COLOCATION_PROFILE_CONTROLLER), optional)
    made["priorityclasses.yaml"] = _source(manager / "priorityclasses.yaml")
    made["koord-manager/webhooks.yaml"] = _webhooks(_source(manifests / "optional" / "webhooks.yaml"))
    for path in _RIGHTS:
        made[f"{path}.yaml"] = _rights(_source(manifests / f"{path}.yaml"))
    made["koordlet/units.yaml"] = _rights(_source(manifests / "optional" / "node-units.yaml"))
    values = yaml.safe_load((root / "charts/koordinator/values.yaml").read_text(encoding="utf-8"))
    made["_known.tpl"] = _known(values)
    return {path: _headed(path, text) for path, text in made.items()}


def leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the path and the default of each value."""
    for key, value in values.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and path not in _SECTIONS:
            yield from leaves(value, f"{path}.")
        else:
            yield path, value


def _source(file: Path) -> str:
    """Returns the manifest with the namespace as a value. Raises ValueError if Helm would read something into it."""
    text = file.read_text(encoding="utf-8")
    if "{{" in text:
        raise ValueError(f"{file}: {{{{ is Helm's")
    return text.replace(NAMESPACE, _OWN_NAMESPACE)


def _crd(text: str, name: str) -> str:
    """Makes ``helm uninstall`` keep a CRD, since all objects of the kind would go with it."""
    plural = name.partition("_")[2].removesuffix(".yaml")
    head = re.search(r"^metadata:\n(  annotations:\n(?:    .*\n)+)?  name: \S+\n", text, re.MULTILINE)
    if head is None:
        raise ValueError(f"{name}: has no metadata.name of its own line")
    kept, end = (_KEPT, head.end()) if head[1] is None else (_KEPT.split("\n", 1)[1], head.end(1))
    return _guarded(f"and .Values.crds.managed .Values.crds.{plural}", text[:end] + kept + text[end:])


def _rights(text: str) -> str:
    return "---\n".join(map(_right, re.split(r"^---\n", text, flags=re.MULTILINE)))


def _right(document: str) -> str:
    if re.search("^kind: ServiceAccount$", document, re.MULTILINE):
        document += _ACCOUNT_ANNOTATIONS
    if re.search("^kind: ValidatingAdmissionPolicy", document, re.MULTILINE):
        document = _guarded(_NODE_CLAIMS, document)
    name = re.search(r"^metadata:\n  name: (\S+)$", document, re.MULTILINE)
    guard = _GUARDS.get(name[1]) if name is not None else None
    return document if guard is None else _guarded(guard, document)


def _webhooks(text: str) -> str:
    """Puts gates and values into the webhooks; drops the comment at the head, which is for those who apply the file."""
    webhook, lines = "", []
    for line in text[text.index("apiVersion:") :].splitlines(keepends=True):
        if line.startswith(("  - name: ", "---")):
            if webhook:
                lines.append(_END)
            webhook = line.removeprefix("  - name: ").strip() if line.startswith(" ") else ""
            if webhook:
                lines.append(f"{{{{- if {_is_on('koord.isServed', WEBHOOK_GATES[webhook])} }}}}\n")
        if line.strip() == "failurePolicy: Ignore" and webhook in _POLICIES:
            value = f"{{{{ .Values.webhookConfiguration.failurePolicy.{_POLICIES[webhook]} }}}}"
            line = line.replace("Ignore", value)  # noqa: PLW2901
        line = line.replace("timeoutSeconds: 10", "timeoutSeconds: {{ .Values.webhookConfiguration.timeoutSeconds }}")  # noqa: PLW2901
        lines.append(line)
    if webhook:
        lines.append(_END)
    return re.sub(
        r"^    matchConditions:\n(?:      .*\n)+",
        lambda found: _guarded(_MATCH_CONDITIONS, found[0]),
        "".join(lines),
        flags=re.MULTILINE,
    )


def _is_on(helper: str, gate: str) -> str:
    return f'include "{helper}" (list "{gate}" $ {str(MANAGER_GATES[gate].is_on).lower()})'


def _known(values: Mapping[str, Any]) -> str:
    paths = dict(leaves(values))
    above = {path[:index] for path in paths for index, letter in enumerate(path) if letter == "."}
    rows = [
        *(f"{path}: value" for path in sorted(paths)),
        *(f"{path}: section" for path in sorted(above)),
    ]
    return (
        _defined("koord.known", "\n".join(rows))
        + _defined("koord.managerGates", _gates(MANAGER_GATES))
        + _defined("koord.nodeGates", _gates(NODE_GATES))
    )


def _gates(gates: Mapping[str, object]) -> str:
    return "\n".join(f"- {name}" for name in (*sorted(gates), ALL_ALPHA, ALL_BETA))


def _defined(name: str, text: str) -> str:
    return f'{{{{- define "{name}" }}}}\n{text}\n{{{{- end }}}}\n'


def _guarded(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{_END}"


def _headed(path: str, text: str) -> str:
    origin = "values.yaml and the feature gates" if path == "_known.tpl" else "manifests/"
    return f"{{{{- /* Written by `python -m release.chart` from {origin}; change those. */ -}}}}\n{text}"


def files(root: Path = ROOT) -> dict[str, str]:
    """Returns each derived text by its path below the chart."""
    whole = json.loads((root / "charts/koordinator" / SCHEMA).read_text(encoding="utf-8"))
    schema = json.dumps(valuesschema.put_into(whole), indent=2, ensure_ascii=False) + "\n"
    return {SCHEMA: schema, **{f"templates/{path}": text for path, text in templates(root).items()}}


def write(chart: Path = CHART, texts: Callable[[], Mapping[str, str]] = files) -> None:
    for path, text in texts().items():
        file = chart / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def differences(chart: Path = CHART, texts: Callable[[], Mapping[str, str]] = files) -> list[str]:
    """Returns the files that are missing or have another text."""
    return sorted(path for path, text in texts().items() if _text(chart / path) != text)


def _text(file: Path) -> str | None:
    return file.read_text(encoding="utf-8") if file.exists() else None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.chart", description="Write the chart's derived files.")
    parser.add_argument("--check", action="store_true", help="write nothing; name each file that differs, and fail")
    if not parser.parse_args(arguments).check:
        write()
        return 0
    differing = differences()
    for path in differing:
        print(f"{path} is not what python -m release.chart writes", file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
