"""Each CRD in manifests/crds is accepted by a real API server, is Established, and prunes nothing of an example."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from integration.cluster.api import Api, Object
from integration.cluster.controlplane import ControlPlane
from integration.cluster.examples import EXAMPLES
from integration.cluster.objects import condition
from integration.harness.processes import wait_for

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FILES = sorted((Path(__file__).parents[2] / "manifests" / "crds").glob("*.yaml"))
NODE_SLOS = "/apis/slo.koordinator.sh/v1alpha1/nodeslos"
CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
OURS = {"NodeMetric", "NodeSLO", "ClusterColocationProfile", "PodGroup", "ElasticQuota", "ElasticQuotaProfile"}


def _definitions() -> list[Object]:
    return [document for path in FILES for document in yaml.safe_load_all(path.read_text()) if document]


def _versions() -> list[Any]:
    """Each served version of each kind."""
    return [
        pytest.param(definition, version["name"], id=f"{definition['spec']['names']['kind']}-{version['name']}")
        for definition in _definitions()
        for version in definition["spec"]["versions"]
        if version["served"]
    ]


def test_our_kinds_are_there() -> None:
    kinds = {definition["spec"]["names"]["kind"] for definition in _definitions()}
    assert OURS <= kinds <= set(EXAMPLES)


@pytest.mark.parametrize(("definition", "version"), _versions())
def test_an_example_is_established_and_comes_back_unpruned(
    api: Api, control_plane: ControlPlane, definition: Object, version: str
) -> None:
    established = _establish(api, definition)
    assert condition(established, "NonStructuralSchema") in ("", "False")
    spec = definition["spec"]
    group_version = f"{spec['group']}/{version}"
    place = "namespaces/default/" if spec["scope"] == "Namespaced" else ""
    collection = f"/apis/{group_version}/{place}{spec['names']['plural']}"
    name = f"example-{version}"
    manifest = {
        "apiVersion": group_version,
        "kind": spec["names"]["kind"],
        "metadata": {"name": name},
        **EXAMPLES[spec["names"]["kind"]],
    }
    created = api.create(f"{collection}?fieldValidation=Strict", manifest)
    if "status" in manifest and _has_status(definition, version):
        api.replace(f"{collection}/{name}/status?fieldValidation=Strict", {**created, "status": manifest["status"]})
    assert missing(manifest, api.get(f"{collection}/{name}")) == []
    (served,) = (each for each in spec["versions"] if each["name"] == version)
    header = control_plane.kubectl("get", f"{spec['names']['plural']}.{spec['group']}", "-o", "wide").splitlines()[0]
    assert header.split() == ["NAME", *(column["name"].upper() for column in served["additionalPrinterColumns"])]


@pytest.mark.parametrize(
    "said", [{}, {"enable": True, "egressLimit": "50M", "ingressRequest": 20}], ids=["none", "some"]
)
def test_what_is_not_said_of_a_classs_network_is_filled_in(api: Api, said: Object) -> None:
    """As with upstream's definition: its node agent takes a limit that is not there for 0."""
    (definition,) = (each for each in _definitions() if each["spec"]["names"]["kind"] == "NodeSLO")
    _establish(api, definition)
    filled_in = {"ingressRequest": 0, "ingressLimit": 100, "egressRequest": 0, "egressLimit": 100}
    strategy = {name: {"networkQOS": said, "cpuQOS": {}} for name in CLASSES}
    manifest = {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeSLO",
        "metadata": {"name": f"networks-{len(said)}"},
        "spec": {"resourceQOSStrategy": strategy},
    }
    stored = api.create(NODE_SLOS, manifest)["spec"]["resourceQOSStrategy"]
    assert stored == {name: {"networkQOS": {**filled_in, **said}, "cpuQOS": {}} for name in CLASSES}


@pytest.mark.parametrize(
    ("returned", "paths"),
    [
        ({"a": {"b": 1}, "c": [{"d": 2}], "more": 3}, []),
        ({"a": {}, "c": [{"d": 2}]}, ["a.b"]),
        ({"a": {"b": 1}, "c": [{}]}, ["c.0.d"]),
        ({"a": {"b": 1}, "c": []}, ["c"]),
        ({"a": {"b": "1"}, "c": [{"d": 2}]}, ["a.b"]),
    ],
    ids=["more is fine", "a key", "in a list", "an element", "another type"],
)
def test_what_was_pruned_is_found(returned: Object, paths: list[str]) -> None:
    assert missing({"a": {"b": 1}, "c": [{"d": 2}]}, returned) == paths


def missing(sent: object, returned: object, path: str = "") -> list[str]:
    """Paths of the members that are not in ``returned``, or have another value there."""
    prefix = f"{path}." if path else ""
    if isinstance(sent, Mapping) and isinstance(returned, Mapping):
        return [each for key in sent for each in missing(sent[key], returned.get(key), f"{prefix}{key}")]
    if isinstance(sent, list) and isinstance(returned, list) and len(sent) == len(returned):
        return [each for i, item in enumerate(sent) for each in missing(item, returned[i], f"{prefix}{i}")]
    same = sent == returned and type(sent) is type(returned)
    return [] if same else [path]


def _establish(api: Api, definition: Object) -> Object:
    path = f"{DEFINITIONS}/{definition['metadata']['name']}"
    api.apply(path, definition)

    def established() -> Object | None:
        found = api.get(path)
        return found if condition(found, "Established") == "True" else None

    return wait_for(established, 20, f"{path} to be Established")


def _has_status(definition: Object, version: str) -> bool:
    (found,) = (each for each in definition["spec"]["versions"] if each["name"] == version)
    return "status" in found.get("subresources", {})
