"""The chart against what it must agree with: manifests, the schema of its values, Koordinator's values, the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from hatch_build import newest_release
from koord.model.featuregates import GATES
from koord.sloconfig.rows import ROWS, KeyLayout, KeyRow
from koord_manager.options import GATES as MANAGER_GATES
from koord_manager.options import WEBHOOK_GATES
from qosd.giveback import BESIDE
from release import chart
from release.chart import CHART, ROOT, leaves
from tests.charts.koordinator_values import VALUES
from tests.support import docpages

OURS: Mapping[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: Mapping[str, Any] = json.loads((CHART / "values.schema.json").read_text())
HELPERS = (CHART / "templates" / "_helpers.tpl").read_text()
ROLES = [
    *ROOT.glob("manifests/koord-manager/*.yaml"),
    *ROOT.glob("manifests/koord-scheduler/*.yaml"),
    *ROOT.glob("manifests/koordlet/*.yaml"),
    ROOT / "manifests" / "optional" / "node-units.yaml",
    CHART / "templates" / "uninstall.yaml",
    CHART / "templates" / "koordlet" / "pods.yaml",
]
OTHERS = [file for file in ROLES if "koord-scheduler" not in file.parts]


def without_effect() -> set[str]:
    """The paths in the table of values that are said to have none."""
    table = HELPERS.partition('define "koord.withoutEffect"')[2]
    plurals = re.findall(r'"(\w+)"', table.partition("}}")[2].partition("}}")[0])
    return {*re.findall(r"^([\w.]+): ", table, re.MULTILINE), *(f"crds.{plural}" for plural in plurals)}


def schema_of(path: str) -> Mapping[str, Any] | None:
    found: Any = SCHEMA
    for name in path.split("."):
        found = (found or {}).get("properties", {}).get(name)
    return None if found is None else dict(found)


def schema_leaves(schema: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for name, inner in schema["properties"].items():
        path = f"{above}{name}"
        if "properties" in inner and path not in dict(leaves(OURS)):
            yield from schema_leaves(inner, f"{path}.")
        else:
            yield path


def rules(file: Path, kind: str) -> list[Mapping[str, Any]]:
    """All rules of the roles of ``kind`` in a manifest, or in a template that has no braces among them."""
    documents = re.split(r"^---\n", file.read_text(), flags=re.MULTILINE)
    of_kind = [each for each in documents if re.search(rf"^kind: {kind}$", each, re.MULTILINE)]
    return [rule for each in of_kind for rule in yaml.safe_load(each[each.index("\nrules:\n") :])["rules"]]


def test_derived_files_are_what_the_manifests_and_structs_make_of_them() -> None:
    assert chart.differences() == [], "make chart"


def test_a_manifest_with_helms_braces_is_refused(tmp_path: Path) -> None:
    manifest = tmp_path / "x.yaml"
    manifest.write_text("data: '{{ x }}'")
    with pytest.raises(ValueError, match=r"x\.yaml"):
        chart._source(manifest)


def test_kubectl_installs_the_webhooks_of_gates_that_are_on() -> None:
    """As all of them are in the file of every gate, and no field that only newer API servers know."""
    text = (ROOT / "manifests" / "koord-manager" / "webhooks.yaml").read_text()
    every = list(yaml.safe_load_all((ROOT / "manifests" / "optional" / "webhooks.yaml").read_text()))
    assert {each["name"] for document in every for each in document["webhooks"]} == WEBHOOK_GATES.keys()
    for document in every:
        document["webhooks"] = [
            each for each in document["webhooks"] if MANAGER_GATES[WEBHOOK_GATES[each["name"]]].is_on
        ]
        for each in document["webhooks"]:
            each.pop("matchConditions", None)
    assert list(yaml.safe_load_all(text)) == every
    assert "matchConditions" not in text


def test_the_chart_is_of_the_newest_release() -> None:
    release = newest_release(ROOT)
    said = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (said["name"], said["version"], said["appVersion"]) == ("koordinator", release, release)


def test_the_schema_has_every_value_and_no_other() -> None:
    assert sorted(schema_leaves(SCHEMA)) == sorted(path for path, _ in leaves(OURS))


def test_the_schema_refuses_no_key_but_those_of_the_policy() -> None:
    """Koordinator's charts have others, of which NOTES.txt says that they have no effect; the policy is ours alone."""
    others = {name: part for name, part in SCHEMA["properties"].items() if name != "sloControllerConfig"}
    assert '"additionalProperties": false' not in json.dumps(others)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.key)
def test_the_schema_knows_each_field_of_the_policy(row: KeyRow[Any]) -> None:
    key = SCHEMA["properties"]["sloControllerConfig"]["properties"][row.key]
    assert key["additionalProperties"] is False
    nested = (
        key["properties"]
        if row.layout is KeyLayout.FLAT
        else resolved(key["properties"]["clusterStrategy"])["properties"]
    )
    own = {*row.struct.__struct_encode_fields__}
    assert own <= nested.keys() and nested.keys() - own <= {row.layout.value}
    entries = resolved(key["properties"][row.layout.value]["items"])
    assert own | {"name", "nodeSelector"} == entries["properties"].keys()


def resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = schema.get("$ref", "").removeprefix("#/definitions/")
    found: Mapping[str, Any] = SCHEMA["definitions"][name] if name else schema
    return found


@pytest.mark.parametrize("path", [path for path, _ in leaves(VALUES)])
def test_a_value_of_koordinators_is_ours_or_is_said_to_have_no_effect(path: str) -> None:
    known = {*dict(leaves(OURS)), *without_effect()}
    above = [path[: match.start()] for match in re.finditer(r"\.", path)]
    assert known & {path, *above}


def test_what_is_said_to_have_no_effect_is_no_value_of_ours() -> None:
    assert without_effect() & dict(leaves(OURS)).keys() == set()


def test_the_chart_switches_on_gates_that_the_agent_has() -> None:
    daemonset = (CHART / "templates" / "koordlet" / "daemonset.yaml").read_text()
    (gates,) = re.findall(r"--feature-gates=(\w+=.*)$", daemonset, re.MULTILINE)
    assert {gate.partition("=")[0] for gate in gates.split(",")} <= GATES.keys()


@pytest.mark.parametrize(
    "pods", ["koord-manager/workload.yaml", "koord-scheduler/workload.yaml", "koordlet/daemonset.yaml"]
)
def test_pods_declare_the_port_by_which_their_monitor_finds_them(pods: str) -> None:
    monitors = (CHART / "templates" / "monitors.yaml").read_text()
    assert re.findall(r"(\w*[pP]ort): (\S+)$", monitors, re.MULTILINE) == [("port", "metrics")] * 3
    declared = re.findall(r"- name: (\w+)\n +containerPort:", (CHART / "templates" / pods).read_text())
    assert "metrics" in declared


@pytest.mark.parametrize("part", ["koordlet", "scheduler"])
def test_figures_have_an_address(part: str) -> None:
    """An empty one would be every address, or none."""
    assert (schema_of(f"{part}.metrics.addr") or {})["minLength"] == 1


def test_the_page_has_every_value_with_its_default() -> None:
    rows = {path: cells[0] for path, cells in docpages.rows(docpages.page("install.md"), r"[\w.-]+").items()}
    expected = {path: f"`{json.dumps(value)}`" for path, value in leaves(OURS)}
    assert {path: rows.get(path) for path in expected} == expected


# Rights


@pytest.mark.parametrize("file", ROLES, ids=lambda file: file.name)
def test_no_right_to_secrets_or_config_maps_of_the_whole_cluster(file: Path) -> None:
    named = {resource for rule in rules(file, "ClusterRole") for resource in rule["resources"]}
    assert named & {"secrets", "configmaps", "*"} == set()


@pytest.mark.parametrize("file", OTHERS, ids=lambda file: file.name)
def test_no_right_to_write_pods_but_eviction(file: Path) -> None:
    """Of anybody but the scheduler."""
    for rule in [*rules(file, "ClusterRole"), *rules(file, "Role")]:
        for resource in rule["resources"]:
            if resource.startswith("pods"):
                assert set(rule["verbs"]) <= {"get", "list", "watch"} or resource == "pods/eviction"


@pytest.mark.parametrize("file", ROLES, ids=lambda file: file.name)
def test_every_right_is_spelt_out(file: Path) -> None:
    for rule in [*rules(file, "ClusterRole"), *rules(file, "Role")]:
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert "nodes/proxy" not in rule["resources"]


def test_the_agents_pod_ends_what_is_for_a_time_only() -> None:
    daemonset = (CHART / "templates" / "koordlet" / "daemonset.yaml").read_text()
    assert f"command: [koord-qosd, give-back, {BESIDE}]" in daemonset.partition("preStop:")[2]


def test_the_agent_has_no_privilege_and_exact_mounts() -> None:
    daemonset = (CHART / "templates" / "koordlet" / "daemonset.yaml").read_text()
    assert "privileged" not in daemonset
    assert "SYS_ADMIN" not in daemonset
    fixed = re.findall(r"hostPath:\n +path: (/\S*)$", daemonset, re.MULTILINE)
    assert fixed == ["/sys/fs/cgroup", "/run/koord", "/var/lib/koord"]
