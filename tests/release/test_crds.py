"""The CRDs: what is committed is what would be written, an API server takes it, and it takes what upstream's take.

The tables are of upstream's API, written apart from the structs: every field with its type, bounds and choices.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from koord.model import crdfit, schema
from koord.model.nodemetric import NodeMetric
from koord.model.profile import ProfileSpec
from koord.model.slo import NodeSLOSpec
from release.crds import manifest
from release.crds.__main__ import DIRECTORY, differences, main, write
from release.crds.kinds import KINDS, OwnedKind
from release.crds.schemas import pattern
from tests.release import structural
from tests.support.structs import documents

DEFINITIONS = {row.kind.name: manifest.definition(row) for row in KINDS}
SCHEMAS = {
    name: definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for name, definition in DEFINITIONS.items()
}
FIELDS = {name: dict(structural.every(whole)) for name, whole in SCHEMAS.items()}

DEVICES = """
    type string
    labels map
    labels{} string
    id string
    minor int32
    moduleID int32
    health boolean
    resources map
    resources{} quantity
    topology object
    topology.socketID int32
    topology.nodeID int32
    topology.pcieID string
    topology.busID string
    vfGroups array
    vfGroups[].labels map
    vfGroups[].labels{} string
    vfGroups[].vfs array
    vfGroups[].vfs[].minor int32
    vfGroups[].vfs[].busID string
    conditions array
    conditions[].type string
    conditions[].status string
    conditions[].observedGeneration int64
    conditions[].lastTransitionTime date-time
    conditions[].reason string
    conditions[].message string
"""
NODE_METRIC = """
    spec.metricCollectPolicy object
    spec.metricCollectPolicy.aggregateDurationSeconds int64
    spec.metricCollectPolicy.reportIntervalSeconds int64
    spec.metricCollectPolicy.nodeAggregatePolicy object
    spec.metricCollectPolicy.nodeAggregatePolicy.durations array
    spec.metricCollectPolicy.nodeAggregatePolicy.durations[] string
    spec.metricCollectPolicy.nodeMemoryCollectPolicy string
    status.updateTime date-time
    status.nodeMetric object
    status.nodeMetric.nodeUsage ResourceMap
    status.nodeMetric.systemUsage ResourceMap
    status.nodeMetric.aggregatedNodeUsages array
    status.nodeMetric.aggregatedNodeUsages[].duration string
    status.nodeMetric.aggregatedNodeUsages[].usage map
    status.nodeMetric.aggregatedNodeUsages[].usage{} ResourceMap
    status.nodeMetric.aggregatedSystemUsages array
    status.nodeMetric.aggregatedSystemUsages[].duration string
    status.nodeMetric.aggregatedSystemUsages[].usage map
    status.nodeMetric.aggregatedSystemUsages[].usage{} ResourceMap
    status.nodeMetric.numaUsages array
    status.nodeMetric.numaUsages[].numaNodeID int32
    status.nodeMetric.numaUsages[].nodeUsage ResourceMap
    status.nodeMetric.numaUsages[].systemUsage ResourceMap
    status.podsMetric array
    status.podsMetric[].name string
    status.podsMetric[].namespace string
    status.podsMetric[].podUsage ResourceMap
    status.podsMetric[].priority string
    status.podsMetric[].qos string
    status.podsMetric[].extensions free
    status.hostApplicationMetric array
    status.hostApplicationMetric[].name string
    status.hostApplicationMetric[].usage ResourceMap
    status.hostApplicationMetric[].priority string
    status.hostApplicationMetric[].qos string
    status.prodReclaimableMetric object
    status.prodReclaimableMetric.resource ResourceMap
    status.prodPeakMetric object
    status.prodPeakMetric.resource ResourceMap
"""
RESOURCE_QOS = """
    cpuQOS.enable boolean
    cpuQOS.groupIdentity int64
    cpuQOS.schedIdle int64
    cpuQOS.coreExpeller boolean
    memoryQOS.enable boolean
    memoryQOS.minLimitPercent int64 0..
    memoryQOS.lowLimitPercent int64 0..
    memoryQOS.throttlingPercent int64 0..
    memoryQOS.wmarkRatio int64 0..100
    memoryQOS.wmarkScalePermill int64 1..1000
    memoryQOS.wmarkMinAdj int64 -25..50
    memoryQOS.priorityEnable int64
    memoryQOS.priority int64
    memoryQOS.oomKillGroup int64
    memoryQOS.pageCacheEnable boolean
    memoryQOS.pageCacheLimitPercent int64 0..100
    memoryQOS.pageCacheLimitSize int64
    memoryQOS.pageCacheReclaimSync boolean
    blkioQOS.enable boolean
    blkioQOS.blocks array
    blkioQOS.blocks[].name string
    blkioQOS.blocks[].type string
    blkioQOS.blocks[].ioCfg object
    blkioQOS.blocks[].ioCfg.readIOPS int64 0..
    blkioQOS.blocks[].ioCfg.writeIOPS int64 0..
    blkioQOS.blocks[].ioCfg.readBPS int64 0..
    blkioQOS.blocks[].ioCfg.writeBPS int64 0..
    blkioQOS.blocks[].ioCfg.ioWeightPercent int64 1..100
    blkioQOS.blocks[].ioCfg.readLatency int64
    blkioQOS.blocks[].ioCfg.writeLatency int64
    blkioQOS.blocks[].ioCfg.readLatencyPercent int64 0..100
    blkioQOS.blocks[].ioCfg.writeLatencyPercent int64 0..100
    blkioQOS.blocks[].ioCfg.enableUserModel boolean
    blkioQOS.blocks[].ioCfg.modelReadBPS int64 1..
    blkioQOS.blocks[].ioCfg.modelWriteBPS int64 1..
    blkioQOS.blocks[].ioCfg.modelReadSeqIOPS int64 1..
    blkioQOS.blocks[].ioCfg.modelWriteSeqIOPS int64 1..
    blkioQOS.blocks[].ioCfg.modelReadRandIOPS int64 1..
    blkioQOS.blocks[].ioCfg.modelWriteRandIOPS int64 1..
    resctrlQOS.enable boolean
    resctrlQOS.catRangeStartPercent int64 0..100
    resctrlQOS.catRangeEndPercent int64 0..100
    resctrlQOS.mbaPercent int64 0..100
    networkQOS.enable boolean
    networkQOS.ingressRequest int-or-string
    networkQOS.ingressLimit int-or-string
    networkQOS.egressRequest int-or-string
    networkQOS.egressLimit int-or-string
"""
NODE_SLO = """
    spec.resourceUsedThresholdWithBE.enable boolean
    spec.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent int64 0..100
    spec.resourceUsedThresholdWithBE.cpuSuppressMinPercent int64 0..100
    spec.resourceUsedThresholdWithBE.cpuSuppressPolicy string
    spec.resourceUsedThresholdWithBE.memoryEvictThresholdPercent int64 0..100
    spec.resourceUsedThresholdWithBE.memoryEvictLowerPercent int64 0..100
    spec.resourceUsedThresholdWithBE.memoryAllocatableEvictThresholdPercent int64 0..
    spec.resourceUsedThresholdWithBE.memoryAllocatableEvictLowerPercent int64 0..
    spec.resourceUsedThresholdWithBE.cpuEvictBESatisfactionUpperPercent int64
    spec.resourceUsedThresholdWithBE.cpuEvictBESatisfactionLowerPercent int64
    spec.resourceUsedThresholdWithBE.cpuEvictBEUsageThresholdPercent int64
    spec.resourceUsedThresholdWithBE.cpuEvictTimeWindowSeconds int64
    spec.resourceUsedThresholdWithBE.cpuEvictThresholdPercent int64 0..100
    spec.resourceUsedThresholdWithBE.cpuEvictLowerPercent int64 0..100
    spec.resourceUsedThresholdWithBE.cpuAllocatableEvictThresholdPercent int64 0..
    spec.resourceUsedThresholdWithBE.cpuAllocatableEvictLowerPercent int64 0..
    spec.resourceUsedThresholdWithBE.cpuEvictPolicy string
    spec.resourceUsedThresholdWithBE.evictEnabledPriorityThreshold int32
    spec.resourceUsedThresholdWithBE.allocatableEvictPriorityThreshold int32
    spec.resourceQOSStrategy.policies.cpuPolicy string
    spec.resourceQOSStrategy.policies.netQOSPolicy string
    spec.resourceQOSStrategy.lsrClass ResourceQOS
    spec.resourceQOSStrategy.lsClass ResourceQOS
    spec.resourceQOSStrategy.beClass ResourceQOS
    spec.resourceQOSStrategy.systemClass ResourceQOS
    spec.resourceQOSStrategy.cgroupRoot ResourceQOS
    spec.cpuBurstStrategy.policy string
    spec.cpuBurstStrategy.cpuBurstPercent int64 0..10000
    spec.cpuBurstStrategy.cfsQuotaBurstPercent int64
    spec.cpuBurstStrategy.cfsQuotaBurstPeriodSeconds int64
    spec.cpuBurstStrategy.sharePoolThresholdPercent int64
    spec.systemStrategy.minFreeKbytesFactor int64
    spec.systemStrategy.watermarkScaleFactor int64
    spec.systemStrategy.memcgReapBackGround int64
    spec.systemStrategy.schedGroupIdentityEnabled int64
    spec.systemStrategy.schedIdleSaverWmark int64
    spec.systemStrategy.pageCacheLimitEnabled int64
    spec.systemStrategy.schedFeatures map
    spec.systemStrategy.schedFeatures{} boolean
    spec.systemStrategy.totalNetworkBandwidth quantity
    spec.hostApplications array
    spec.hostApplications[].name string
    spec.hostApplications[].priority string
    spec.hostApplications[].qos string
    spec.hostApplications[].cgroupPath.base string
    spec.hostApplications[].cgroupPath.parentDir string
    spec.hostApplications[].cgroupPath.relativePath string
    spec.hostApplications[].strategy free
    spec.extensions free
"""
SELECTOR = """
    matchLabels map
    matchLabels{} string
    matchExpressions array
    matchExpressions[].key string
    matchExpressions[].operator string
    matchExpressions[].values array
    matchExpressions[].values[] string
"""
PROFILE = """
    spec.namespaceSelector LabelSelector
    spec.selector LabelSelector
    spec.probability int-or-string
    spec.qosClass string
    spec.priorityClassName string
    spec.koordinatorPriority int32
    spec.labels map
    spec.labels{} string
    spec.annotations map
    spec.annotations{} string
    spec.labelKeysMapping map
    spec.labelKeysMapping{} string
    spec.annotationKeysMapping map
    spec.annotationKeysMapping{} string
    spec.labelSuffixes map
    spec.labelSuffixes{} string
    spec.schedulerName string
    spec.patch free
"""
RESOURCE_MAP = "resources map\nresources{} quantity\ndevices array\n" + "".join(
    f"devices[].{line.strip()}\n" for line in DEVICES.strip().splitlines()
)
PARTS = {"ResourceMap": RESOURCE_MAP, "ResourceQOS": RESOURCE_QOS, "LabelSelector": SELECTOR}
UPSTREAM = {"NodeMetric": NODE_METRIC, "NodeSLO": NODE_SLO, "ClusterColocationProfile": PROFILE}
CHOICES = {
    "spec.metricCollectPolicy.nodeMemoryCollectPolicy": [
        "usageWithHotPageCache",
        "usageWithoutPageCache",
        "usageWithPageCache",
    ],
    "spec.qosClass": ["LSE", "LSR", "LS", "BE", "SYSTEM"],
}
REQUIRED = {
    "devices[]": {"health"},
    "topology": {"socketID", "nodeID", "pcieID"},
    "vfs[]": {"minor"},
    "conditions[]": {"type", "status", "lastTransitionTime", "reason", "message"},
    "numaUsages[]": {"numaNodeID"},
    "matchExpressions[]": {"key", "operator"},
}
"""Whatever has such a part."""
REQUIRED_OF: Mapping[str, Mapping[str, set[str]]] = {"ElasticQuotaProfile": {"spec": {"quotaName", "nodeSelector"}}}
"""By kind and path."""


def rows(table: str) -> list[tuple[str, str, str]]:
    """Path, type and bounds of each line, with the lines of its parts below."""
    found = []
    for line in table.strip().splitlines():
        path, kind, *bounds = line.split()
        found.append((path, "object" if kind in PARTS else kind, "".join(bounds)))
        found += [(f"{path}.{below}", its, limits) for below, its, limits in rows(PARTS.get(kind, ""))]
    return found


EVERY = [(kind, *row) for kind, table in UPSTREAM.items() for row in rows(table)]


def word(field: Mapping[str, Any]) -> str:
    """The type of a schema in the tables' words; "" if there is none."""
    if field.get("x-kubernetes-int-or-string"):
        return "quantity" if "pattern" in field else "int-or-string"
    if field.get("x-kubernetes-preserve-unknown-fields"):
        return "free"
    return "map" if "additionalProperties" in field else str(field.get("format", field.get("type", "")))


# what is committed


def test_the_committed_files_are_those_that_would_be_written() -> None:
    assert differences(DIRECTORY) == [], "python -m release.crds"


def changed(directory: Path) -> str:
    file = directory / "slo.koordinator.sh_nodeslos.yaml"
    file.write_text(file.read_text().replace("maximum: 100", "maximum: 99", 1))
    return file.name


def missing(directory: Path) -> str:
    file = directory / "config.koordinator.sh_clustercolocationprofiles.yaml"
    file.unlink()
    return file.name


def of_no_kind(directory: Path) -> str:
    (directory / "old.yaml").write_text("kind: CustomResourceDefinition\n")
    return "old.yaml"


@pytest.mark.parametrize("spoil", [changed, missing, of_no_kind])
def test_a_file_that_differs_is_named_and_written_anew(
    spoil: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    assert main(["--check"], tmp_path) == 0
    name = spoil(tmp_path)
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [f"{name} is not what python -m release.crds writes"]
    assert main([], tmp_path) == 0
    assert differences(tmp_path) == []


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_text_is_the_document_without_references(name: str) -> None:
    row = next(each for each in KINDS if each.kind.name == name)
    text = manifest.text(row)
    assert yaml.safe_load(text) == DEFINITIONS[name]
    assert re.search(r"[&*]id\d", text) is None
    assert text == manifest.text(row)


# what an API server says of them


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_is_structural(name: str) -> None:
    assert list(structural.malformed(SCHEMAS[name])) == []


@pytest.mark.parametrize(
    ("path", "flaw"),
    [
        ("spec", {"properties": {"x": {}}}),
        ("spec", {"type": "array"}),
        ("spec", {"additionalProperties": {"type": "string"}}),
        ("spec.probability", {"type": "integer"}),
        ("spec.schedulerName", {"items": {"type": "string"}}),
        ("spec.schedulerName", {"x-kubernetes-preserve-unknown-fields": True}),
        ("spec.koordinatorPriority", {"format": "int16"}),
        ("spec.labels", {"$ref": "#/x"}),
        ("spec.selector", {"required": ["nothing"]}),
        ("spec.qosClass", {"default": "LST"}),
    ],
)
def test_the_test_knows_a_schema_that_is_not(path: str, flaw: dict[str, Any]) -> None:
    whole = copy.deepcopy(SCHEMAS["ClusterColocationProfile"])
    dict(structural.every(whole))[path].update(flaw)  # type: ignore[attr-defined]
    assert list(structural.malformed(whole)) != []


@pytest.mark.parametrize(
    ("name", "group", "plural", "singular"),
    [
        ("NodeMetric", "slo.koordinator.sh", "nodemetrics", "nodemetric"),
        ("NodeSLO", "slo.koordinator.sh", "nodeslos", "nodeslo"),
        (
            "ClusterColocationProfile",
            "config.koordinator.sh",
            "clustercolocationprofiles",
            "clustercolocationprofile",
        ),
    ],
)
def test_names_scope_version_and_status(name: str, group: str, plural: str, singular: str) -> None:
    definition = DEFINITIONS[name]
    spec = definition["spec"]
    (version,) = spec["versions"]
    assert definition["metadata"] == {"name": f"{plural}.{group}"}
    assert (spec["group"], spec["scope"]) == (group, "Cluster")
    assert spec["names"] == {"kind": name, "listKind": f"{name}List", "plural": plural, "singular": singular}
    assert (version["name"], version["served"], version["storage"]) == ("v1alpha1", True, True)
    assert version["subresources"] == {"status": {}}
    assert FIELDS[name]["metadata"] == {"type": "object"}
    assert {"spec", "status"} <= FIELDS[name].keys()


@pytest.mark.parametrize(
    ("name", "path", "sentence"),
    [
        ("NodeMetric", "status.updateTime", "When the status was written, by the node's clock."),
        ("NodeMetric", "status.podsMetric[]", "The use of one pod."),
        ("NodeMetric", "status.nodeMetric.systemUsage", "Of the node, less pods and host applications."),
        ("NodeSLO", "spec.resourceQOSStrategy.lsClass.cpuQOS", "Group identity (`cpu.bvt_warp_ns`), idle scheduling"),
        ("NodeSLO", "spec.cpuBurstStrategy.cfsQuotaBurstPeriodSeconds", "-1: any time"),
        ("ClusterColocationProfile", "spec.patch", "A strategic merge patch of the pod, applied last."),
    ],
)
def test_a_field_is_explained_by_its_own_sentence_or_by_that_of_its_type(name: str, path: str, sentence: str) -> None:
    assert sentence in FIELDS[name][path]["description"]


# what upstream's have


@pytest.mark.parametrize("name", UPSTREAM)
def test_every_field_of_upstream_s_is_there_with_its_type(name: str) -> None:
    stated = {path: kind for owner, path, kind, _ in EVERY if owner == name}
    assert {path: word(FIELDS[name].get(path, {})) for path in stated} == stated


@pytest.mark.parametrize("name", UPSTREAM)
def test_bounds_and_choices_are_upstream_s(name: str) -> None:
    stated = {path: limits for kind, path, _, limits in EVERY if kind == name and limits}
    assert {path: bounds(field) for path, field in FIELDS[name].items() if bounds(field)} == stated
    choices = {path: field["enum"] for path, field in FIELDS[name].items() if "enum" in field}
    assert choices == {path: words for path, words in CHOICES.items() if path in FIELDS[name]}


def bounds(field: Mapping[str, Any]) -> str:
    low, high = field.get("minimum", ""), field.get("maximum", "")
    return f"{low}..{high}" if (low, high) != ("", "") else ""


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row.kind.name)
def test_what_the_api_server_takes_beyond_a_struct_is_of_fields_that_are(row: OwnedKind) -> None:
    assert row.schemas.bounds.keys() <= {pattern(path) for path in FIELDS[row.kind.name]}


DEFAULTS: Mapping[str, int] = {
    "devices[].health": False,
    "networkQOS.ingressRequest": 0,
    "networkQOS.ingressLimit": 100,
    "networkQOS.egressRequest": 0,
    "networkQOS.egressLimit": 100,
}
"""By how the paths end, wherever upstream has such a part."""


@pytest.mark.parametrize("name", UPSTREAM)
def test_nothing_is_required_or_filled_in_that_upstream_does_not(name: str) -> None:
    required = {path: set(field["required"]) for path, field in FIELDS[name].items() if "required" in field}
    parts = {path: path.rsplit(".", 1)[-1] for path in FIELDS[name]}
    found = {path: REQUIRED[part] for path, part in parts.items() if part in REQUIRED}
    assert required == {**found, **REQUIRED_OF.get(name, {})}
    filled_in = {path: field["default"] for path, field in FIELDS[name].items() if "default" in field}
    stated = [path for owner, path, *_ in EVERY if owner == name]
    assert filled_in == {path: value for path in stated for end, value in DEFAULTS.items() if path.endswith(f".{end}")}


def test_the_table_of_required_members_is_of_members_that_are() -> None:
    everywhere = {
        path.rsplit(".", 1)[-1]
        for kind, fields in FIELDS.items()
        for path, each in fields.items()
        if "required" in each and path not in REQUIRED_OF.get(kind, {})
    }
    assert everywhere == REQUIRED.keys()


def test_a_definition_of_an_older_release_is_told_from_ours() -> None:
    ours = DEFINITIONS["NodeMetric"]
    assert crdfit.fit(ours, ours).is_complete
    installed = copy.deepcopy(ours)
    usage = dict(structural.every(installed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))["status.nodeMetric"]
    del usage["properties"]["numaUsages"]
    assert crdfit.fit(ours, installed).sentence() == (
        "The installed CustomResourceDefinition nodemetrics.slo.koordinator.sh drops status.nodeMetric.numaUsages."
    )


# objects

NODE_SLO_AS_UPSTREAM_WRITES_IT = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeSLO",
    "metadata": {"name": "node-1", "generation": 3},
    "spec": {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressThresholdPercent": 65,
            "cpuSuppressPolicy": "cpuset",
        },
        "resourceQOSStrategy": {
            "policies": {"cpuPolicy": "groupIdentity"},
            "beClass": {
                "cpuQOS": {"enable": True, "groupIdentity": -1},
                "networkQOS": {"enable": True, "ingressRequest": 0, "ingressLimit": "50M"},
            },
            "cgroupRoot": {
                "blkioQOS": {"enable": False, "blocks": [{"name": "/dev/vdb", "type": "device", "ioCfg": {}}]}
            },
        },
        "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 0, "cfsQuotaBurstPeriodSeconds": -1},
        "systemStrategy": {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "0"},
        "hostApplications": [{"name": "nginx", "qos": "LS", "cgroupPath": {"base": "CgroupRoot"}, "strategy": {}}],
        "extensions": {"Object": {}},
    },
    "status": {},
}
PROFILE_AS_UPSTREAM_WRITES_IT = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "colocation"},
    "spec": {
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        "selector": {"matchLabels": {"app-type": "batch"}},
        "probability": "70%",
        "qosClass": "BE",
        "koordinatorPriority": 1000,
        "patch": {"spec": {"terminationGracePeriodSeconds": 30, "affinity": None}},
    },
    "status": {},
}


def with_member(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    whole = copy.deepcopy(document)
    *parents, last = path.split(".")
    place = whole
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return whole


SLO, CCP, THRESHOLDS = NODE_SLO_AS_UPSTREAM_WRITES_IT, PROFILE_AS_UPSTREAM_WRITES_IT, "spec.resourceUsedThresholdWithBE"


@pytest.mark.parametrize(
    ("document", "path", "value"),
    [
        (SLO, "spec.extensions", {"Object": {"a": 1}}),
        (SLO, "spec.extensions", {"koord": {"cpuSuppress": {"policy": "pressure"}}, "other": [1]}),
        (SLO, f"{THRESHOLDS}.cpuEvictBESatisfactionLowerPercent", 80),
        (SLO, f"{THRESHOLDS}.allocatableEvictPriorityThreshold", 9999),
        (SLO, f"{THRESHOLDS}.cpuSuppressPolicy", "of another release"),
        (SLO, f"{THRESHOLDS}.cpuSuppressPolicy", ""),
        (SLO, "spec.systemStrategy.watermarkScaleFactor", 1000),
        (SLO, "spec.systemStrategy.totalNetworkBandwidth", 1000000),
        (SLO, "spec.resourceQOSStrategy.lsClass", {"memoryQOS": {"throttlingPercent": 120}}),
        (SLO, "spec.resourceQOSStrategy.lsClass", {"networkQOS": {"egressLimit": "50%"}}),
        (SLO, "spec.hostApplications", None),
        (CCP, "spec.probability", 70),
        (CCP, "spec.patch", None),
        (CCP, "spec.selector", {}),
    ],
)
def test_what_upstream_s_schema_takes_passes(document: dict[str, Any], path: str, value: object) -> None:
    whole = with_member(document, path, value)
    assert list(structural.problems(SCHEMAS[document["kind"]], whole)) == []


@pytest.mark.parametrize(
    ("document", "path", "value", "problem"),
    [
        (SLO, f"{THRESHOLDS}.cpuSuppressThresholdPercent", 101, "101 is not in 0..100"),
        (SLO, f"{THRESHOLDS}.evictEnabledPriorityThreshold", 2**31, "is not in -2147483648..2147483647"),
        (SLO, f"{THRESHOLDS}.enable", "true", "is not of type boolean"),
        (SLO, "spec.cpuBurstStrategy.cpuBurstPercent", 10001, "10001 is not in 0..10000"),
        (SLO, "spec.resourceQOSStrategy.lsClass", {"memoryQOS": {"wmarkMinAdj": -26}}, "-26 is not in -25..50"),
        (SLO, "spec.systemStrategy.totalNetworkBandwidth", "1000Mbps", "does not match"),
        (SLO, "spec.future", 1, "spec: future would be dropped"),
        (CCP, "spec.qosClass", "LST", "'LST' is not one of"),
        (CCP, "spec.probability", 0.5, "is neither a number nor a string"),
        (CCP, "spec.selector", {"matchExpressions": [{"key": "a"}]}, "lacks operator"),
        (CCP, "spec.patch", "x", "is not of type object"),
    ],
)
def test_what_is_refused_or_dropped(document: dict[str, Any], path: str, value: object, problem: str) -> None:
    (found,) = structural.problems(SCHEMAS[document["kind"]], with_member(document, path, value))
    assert problem in found


@given(st.data())
@pytest.mark.parametrize(
    ("name", "cls"), [("NodeMetric", NodeMetric), ("NodeSLO", NodeSLOSpec), ("ClusterColocationProfile", ProfileSpec)]
)
def test_whatever_a_struct_says_passes_whole(name: str, cls: type[msgspec.Struct], data: st.DataObject) -> None:
    document = data.draw(documents(cls))
    if cls is NodeMetric:
        said = json.loads(msgspec.json.encode(msgspec.convert(document, cls)))
    else:
        said = {"spec": json.loads(schema.encode(schema.read(cls, document)))}
    assert list(structural.problems(SCHEMAS[name], said)) == []


@pytest.mark.parametrize("row", KINDS, ids=lambda row: row.kind.name)
def test_the_columns_of_kubectl_get_are_fields_of_the_kind(row: OwnedKind) -> None:
    (version,) = DEFINITIONS[row.kind.name]["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    assert columns[-1] == {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
    assert len({column["name"] for column in columns}) == len(columns) > 1
    for column in columns[:-1]:
        steps = column["jsonPath"].removeprefix(".").split(".")
        schema: Any = SCHEMAS[row.kind.name]
        for step in steps:
            schema = schema.get("properties", {}).get(step) or schema["additionalProperties"]
        expected = {"date": "string"}.get(column["type"], column["type"])
        assert schema.get("x-kubernetes-int-or-string") or schema["type"] == expected, column
