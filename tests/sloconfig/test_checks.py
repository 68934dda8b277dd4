"""What the webhook refuses of a ConfigMap, where it is, and what it lets pass that upstream does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.model.problem import Problem
from koord.sloconfig import checks, mergedrules
from koord.sloconfig.checks import Reason, Violation
from koord.sloconfig.loading import load
from koord.sloconfig.rows import ROWS, KeyLayout

PARSE, PARAMETER, OVERLAP, EXISTING = Reason.PARSE, Reason.PARAMETER, Reason.OVERLAP, Reason.EXISTING_NODE
CHART = {"colocation-config": '{"enable": true}', "resource-threshold-config": '{"clusterStrategy":{"enable": true}}'}
LAYOUTS = {row.key: row.layout for row in ROWS}
POOL_A, POOL_B = ({"nodeSelector": {"matchLabels": {"pool": pool}}} for pool in "ab")
ZONE = {"nodeSelector": {"matchLabels": {"zone": "z"}}}


def text_of(key: str, cluster: dict[str, Any], *entries: dict[str, Any]) -> dict[str, str]:
    if LAYOUTS[key] is KeyLayout.NESTED:
        return {key: json.dumps({"clusterStrategy": cluster, "nodeStrategies": entries})}
    return {key: json.dumps({**cluster, "nodeConfigs": entries})}


def thresholds(cluster: dict[str, Any], *entries: dict[str, Any]) -> dict[str, str]:
    return text_of("resource-threshold-config", cluster, *entries)


def network(**classes: Any) -> dict[str, Any]:
    return {name: {"networkQOS": {"enable": True, "egressRequest": amount}} for name, amount in classes.items()}


def qos(cluster: dict[str, Any], *entries: dict[str, Any]) -> dict[str, str]:
    return text_of("resource-qos-config", cluster, *entries)


def bandwidth(cluster: str, *entries: dict[str, Any]) -> dict[str, str]:
    return text_of("system-config", {"totalNetworkBandwidth": cluster}, *entries)


def messages(data: dict[str, str], **options: Any) -> list[tuple[Reason, str]]:
    violations = checks.check(data, **options)
    assert all(each.problem.path.startswith(each.key) for each in violations)
    return [(each.reason, str(each.problem)) for each in violations]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="nothing"),
        pytest.param(CHART, id="the chart's"),
        pytest.param({"colocation-config": "", "other": "{"}, id="blank, and a key of nobody"),
        pytest.param({"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 500}'}, id="over-selling"),
        pytest.param(thresholds({"memoryEvictThresholdPercent": 80}), id="an upper threshold alone"),
        pytest.param(thresholds({"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 70}), id="a pair"),
        pytest.param(
            thresholds({"memoryEvictThresholdPercent": 80}, {**POOL_A, "memoryEvictLowerPercent": 75}),
            id="a pair of cluster and node",
        ),
        pytest.param(qos(network(lsClass=60, beClass=40)), id="percents without a total"),
        pytest.param(qos(network(lsClass=60, beClass=40)) | bandwidth("0"), id="percents of an unknown total"),
        pytest.param(qos(network(lsClass="600M", beClass="400M")) | bandwidth("1G"), id="quantities that fit"),
        pytest.param(qos(network(lsClass="600M", beClass=40)) | bandwidth("1G"), id="both kinds that fit"),
        pytest.param(
            qos({}, {**POOL_A, **network(lsClass="6G", beClass="4G")})
            | bandwidth("1G", {**POOL_A, "totalNetworkBandwidth": "10G"}),
            id="the total of the same nodes",
        ),
        pytest.param(qos({}, {**POOL_A}, {**POOL_B}), id="entries of different nodes"),
        pytest.param(
            text_of("host-application-config", {"applications": [{"name": "a", "qos": "LS"}]}), id="applications"
        ),
        pytest.param(
            text_of("cpu-normalization-config", {"enable": True, "defaultRatio": 1, "ratioModel": {"X": {}}}),
            id="normalization",
        ),
        pytest.param(
            text_of("resource-amplification-config", {"resourceAmplificationRatio": {"cpu": 0.8}}), id="amplification"
        ),
    ],
)
def test_what_passes(data: dict[str, str]) -> None:
    assert messages(data) == []


FIELDS = [
    ("colocation-config", {"metricAggregateDurationSeconds": 0}, "0 is less than 1"),
    ("colocation-config", {"degradeTimeMinutes": 0}, "0 is less than 1"),
    ("colocation-config", {"resourceDiffThreshold": 1.1}, "1.1 is more than 1"),
    ("colocation-config", {"midCPUThresholdPercent": 101}, "101 is not in 0..100"),
    ("colocation-config", {"batchCPUThresholdPercent": -1}, "-1 is less than 0"),
    ("colocation-config", {"cpuCalculatePolicy": "request"}, "'request' is no policy for CPU"),
    ("resource-threshold-config", {"cpuEvictTimeWindowSeconds": 0}, "0 is less than 1"),
    ("resource-threshold-config", {"allocatableEvictPriorityThreshold": 8000}, "8000 is not in"),
    ("resource-threshold-config", {"memoryEvictLowerPercent": 70}, "70 is not less than memoryEvictThresholdPercent"),
    (
        "resource-threshold-config",
        {"cpuAllocatableEvictThresholdPercent": 90},
        "90 needs cpuAllocatableEvictLowerPercent too",
    ),
    ("cpu-burst-config", {"cfsQuotaBurstPeriodSeconds": -2}, "-2 is less than -1"),
    ("cpu-burst-config", {"cfsQuotaBurstPercent": 99}, "99 is less than 100"),
    ("system-config", {"watermarkScaleFactor": 401}, "401 is not in 10..400"),
    ("system-config", {"totalNetworkBandwidth": "-1"}, "'-1' is negative"),
    ("cpu-normalization-config", {"defaultRatio": 0.99}, "0.99 is less than 1"),
    ("cpu-normalization-config", {"defaultRatio": 5.01}, "5.01 is more than 5"),
]


@pytest.mark.parametrize(("key", "strategy", "message"), FIELDS)
def test_a_field_of_the_cluster_and_of_an_entry(key: str, strategy: dict[str, Any], message: str) -> None:
    cluster = f"{key}.clusterStrategy" if LAYOUTS[key] is KeyLayout.NESTED else key
    (field,) = strategy
    for data, path in (
        (text_of(key, strategy), f"{cluster}.{field}"),
        (text_of(key, {}, {**POOL_A, **strategy}), f"{key}.{LAYOUTS[key]}[0].{field}"),
        (text_of(key, strategy, {**POOL_A}, {**POOL_B}), f"{cluster}.{field}"),  # and not once more for each entry
    ):
        ((reason, text),) = messages(data)
        assert reason is PARAMETER
        assert text.startswith(f"{path}: {message}"), text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            {"colocation-config": "{bad"},
            [
                (
                    PARSE,
                    "colocation-config: '{bad' is not JSON: JSON is malformed: object keys must be strings (byte 1)",
                )
            ],
            id="no JSON",
        ),
        pytest.param(
            {"resource-qos-config": "[]"}, [(PARAMETER, "resource-qos-config: a list is not an object")], id="a list"
        ),
        pytest.param(
            qos({"lsClass": {"memoryQOS": {"wmarkRatio": 150, "priority": 13}}}),
            [
                (
                    PARAMETER,
                    "resource-qos-config.clusterStrategy.lsClass.memoryQOS.wmarkRatio: 150 is not in 0..100",
                ),
                (PARAMETER, "resource-qos-config.clusterStrategy.lsClass.memoryQOS.priority: 13 is not in 0..12"),
            ],
            id="every bad field",
        ),
        pytest.param(
            thresholds({"cpuSuppressThresholdPercent": 101}, {"cpuSuppressThresholdPercent": 50}),
            [
                (
                    PARAMETER,
                    "resource-threshold-config.clusterStrategy.cpuSuppressThresholdPercent: 101 is not in 0..100",
                ),
                (
                    PARAMETER,
                    "resource-threshold-config.nodeStrategies[0].nodeSelector: "
                    "is missing, so the entry matches no node",
                ),
            ],
            id="a bad cluster, and an entry of nobody",
        ),
        pytest.param(
            thresholds({"memoryEvictThresholdPercent": 80, "memoryEvictLowerPercent": 75},
                       {**POOL_A, "memoryEvictThresholdPercent": 75}),
            [
                (
                    PARAMETER,
                    "resource-threshold-config.nodeStrategies[0].memoryEvictLowerPercent: "
                    "75 is not less than memoryEvictThresholdPercent, 75",
                )
            ],
            id="each right alone, wrong together",
        ),
        pytest.param(
            qos({"beClass": {"resctrlQOS": {"enable": True, "catRangeStartPercent": 30}}}),
            [
                (
                    PARAMETER,
                    "resource-qos-config.clusterStrategy.beClass.resctrlQOS.catRangeStartPercent: "
                    "30 is not less than catRangeEndPercent, 30",
                )
            ],
            id="against the agent's own default",
        ),
        pytest.param(
            text_of("host-application-config", {"applications": [{"name": "a"}, {"name": "a", "qos": "L"}]}),
            [
                (
                    PARAMETER,
                    "host-application-config.applications[1].name: 'a' is the name of applications[0] too",
                )
            ],
            id="one name twice",
        ),
        pytest.param(
            text_of("resource-amplification-config", {}, {**POOL_A, "resourceAmplificationRatio": {"memory": 0.5}}),
            [
                (
                    PARAMETER,
                    "resource-amplification-config.nodeConfigs[0].resourceAmplificationRatio.memory: 0.5 is less than 1",  # noqa: E501
                )
            ],
            id="amplification",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(data: dict[str, str], expected: list[tuple[Reason, str]]) -> None:
    assert messages(data) == expected


LS, BE = "lsClass.networkQOS.egressRequest", "beClass.networkQOS.egressRequest"
CLUSTER, ENTRY = "resource-qos-config.clusterStrategy", "resource-qos-config.nodeStrategies[0]"


@pytest.mark.parametrize(
    ("data", "paths", "why"),
    [
        pytest.param(qos(network(lsClass=60, beClass=50)), [CLUSTER], "more than 100 %", id="percents"),
        pytest.param(
            qos(network(lsClass="6G", beClass="5G")) | bandwidth("10G"), [CLUSTER], "10000000000", id="quantities"
        ),
        pytest.param(
            qos({}, {**POOL_A, **network(lsClass="6G", beClass="4G")}) | bandwidth("1G"),
            [ENTRY],
            "1000000000",
            id="entry",
        ),
        pytest.param(
            qos(network(lsClass="6G", beClass="4G")) | bandwidth("10G", {**POOL_A, "totalNetworkBandwidth": "1G"}),
            [CLUSTER],
            "1000000000",
            id="the total of some nodes",
        ),
        pytest.param(
            qos({}, {**POOL_A, **network(lsClass="6G", beClass="4G")})
            | bandwidth("10G", {**ZONE, "totalNetworkBandwidth": "1G"}),
            [ENTRY],
            "1000000000",
            id="nodes of two entries",
        ),
        pytest.param(
            qos({}, {**POOL_A, **network(lsClass="6G", beClass="4G")})
            | bandwidth("10G", {**POOL_B, "totalNetworkBandwidth": "1G"}),
            [],
            "",
            id="no node of both entries",
        ),
    ],
)
def test_requests_of_network_bandwidth(data: dict[str, str], paths: list[str], why: str) -> None:
    found = checks.check(data)
    assert [each.problem.path for each in found] == [f"{path}.{name}" for path in paths for name in (LS, BE)]
    assert all(why in each.problem.message for each in found)


def selecting(*selectors: Any, names: str = "") -> dict[str, str]:
    entries = [{"nodeSelector": selector} for selector in selectors]
    named = [{**entry, "name": name} for entry, name in zip(entries, names, strict=False)] if names else entries
    return text_of("colocation-config", {}, *named)


def at(index: int, field: str = "nodeSelector") -> str:
    return f"colocation-config.nodeConfigs[{index}].{field}"


A, B, IN_AB = (
    {"matchLabels": {"pool": "a"}},
    {"matchLabels": {"pool": "b"}},
    {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["b", "a"]}]},
)
NOT_A = {"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a"]}]}
NO_ZONE = {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(selecting(A, B), [], id="apart"),
        pytest.param(selecting(A, NOT_A), [], id="apart by exclusion"),
        pytest.param(
            selecting(None), [(PARAMETER, f"{at(0)}: is missing, so the entry matches no node")], id="no selector"
        ),
        pytest.param(
            selecting({}, A),
            [(PARAMETER, f"{at(0)}: is empty, so the entry matches every node: use the cluster's strategy")],
            id="an empty selector",
        ),
        pytest.param(
            selecting({"matchExpressions": [{"key": "pool", "operator": "In"}]}),
            [
                (
                    PARAMETER,
                    f"{at(0)}.matchExpressions[0]: 'pool' cannot be used: operator In lacks values",
                )
            ],
            id="a bad expression",
        ),
        pytest.param(
            selecting(A, A),
            [(OVERLAP, f"{at(1)}: matches a node with the labels pool=a, as does colocation-config.nodeConfigs[0]")],
            id="alike",
        ),
        pytest.param(
            selecting(A, B, IN_AB),
            [
                (OVERLAP, f"{at(2)}: matches a node with the labels pool=a, as does colocation-config.nodeConfigs[0]"),
                (OVERLAP, f"{at(2)}: matches a node with the labels pool=b, as does colocation-config.nodeConfigs[1]"),
            ],
            id="each pair",
        ),
        pytest.param(
            selecting(NOT_A, {"matchExpressions": [*NOT_A["matchExpressions"], *NO_ZONE["matchExpressions"]]}),
            [(OVERLAP, f"{at(1)}: matches a node without labels, as does colocation-config.nodeConfigs[0]")],
            id="a node without labels",
        ),
        pytest.param(selecting(NOT_A, NO_ZONE), [], id="neither matches all nodes of the other"),
        pytest.param(selecting(A, {"matchLabels": {"zone": "z"}}), [], id="by two labels"),
    ],
)
def test_selectors_of_entries(data: dict[str, str], expected: list[tuple[Reason, str]]) -> None:
    assert messages(data) == expected


@pytest.mark.parametrize(
    ("names", "required", "expected"),
    [
        ("abc", True, []),
        ("", False, []),
        ("aaa", False, []),
        ("", True, [f"{at(index, 'name')}: is missing" for index in range(3)]),
        (
            "aaa",
            True,
            [f"{at(index, 'name')}: 'a' is the name of colocation-config.nodeConfigs[0], too" for index in (1, 2)],
        ),
    ],
)
def test_names_of_entries(names: str, required: bool, expected: list[str]) -> None:
    data = selecting(A, B, {"matchLabels": {"pool": "c"}}, names=names)
    assert messages(data, names_required=required) == [(PARAMETER, message) for message in expected]


NODES = [(f"node-{number}", {"pool": "a", "zone": "z"}) for number in range(7)] + [("other", {"pool": "a"})]


@pytest.mark.parametrize(
    ("data", "violations"),
    [
        pytest.param(selecting(A, B), [], id="apart"),
        pytest.param(
            selecting(A, {"matchLabels": {"zone": "z"}}, names="xy"),
            [
                Violation(
                    EXISTING,
                    "colocation-config",
                    Problem(
                        at(1),
                        "matches node-0, node-1, node-2, node-3, node-4, and 2 more, "
                        "as does colocation-config.nodeConfigs[0]",
                    ),
                    ("x", "y"),
                    ("node-0", "node-1", "node-2", "node-3", "node-4"),
                )
            ],
            id="by name",
        ),
        pytest.param(
            selecting(A, IN_AB),
            [
                Violation(
                    EXISTING,
                    "colocation-config",
                    Problem(
                        at(1),
                        "matches node-0, node-1, node-2, node-3, node-4, and 3 more, "
                        "as does colocation-config.nodeConfigs[0]",
                    ),
                    ("colocation-config.nodeConfigs[0]", "colocation-config.nodeConfigs[1]"),
                    ("node-0", "node-1", "node-2", "node-3", "node-4"),
                )
            ],
            id="without names",
        ),
        pytest.param(selecting(B, IN_AB), [], id="such a node is not there"),
        pytest.param(selecting({}, A), [], id="an empty selector is refused as such"),
    ],
)
def test_nodes_that_there_are(data: dict[str, str], violations: list[Violation]) -> None:
    assert [each for each in checks.check(data, NODES) if each.reason is EXISTING] == violations


def test_a_node_that_two_entries_match_is_refused() -> None:
    config = load(selecting(A, {"matchLabels": {"zone": "z"}}, names="xy") | thresholds({}, POOL_A)).config
    assert checks.check_node(config, "n", {"pool": "a"}) == []
    (violation,) = checks.check_node(config, "n", {"pool": "a", "zone": "z"})
    assert (violation.reason, violation.key) == (EXISTING, "colocation-config")
    assert (violation.strategies, violation.example_nodes) == (("x", "y"), ("n",))


def test_the_list_of_overlaps_ends() -> None:
    assert len(checks.check(selecting(*[A] * 300))) == checks.MOST_OVERLAPS


def pairs_of(count: int, request: str, first: dict[str, Any] | None = None) -> dict[str, str]:
    """Entries of two keys of which any two may have a node together; ``first`` is before those that ask."""
    asking = [{"nodeSelector": exists(f"a{number}"), **network(lsClass=request)} for number in range(count)]
    having = [
        {"nodeSelector": exists(f"b{number}"), "totalNetworkBandwidth": f"{number + 1}G"} for number in range(count)
    ]
    return qos({}, *([first] if first else []), *asking) | bandwidth("1000G", *having)


def exists(key: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "Exists"}]}


def test_the_list_of_wrong_pairs_ends_and_says_so() -> None:
    *listed, last = checks.check(pairs_of(60, "500G"))
    assert len({each.problem.path for each in listed}) < len(listed) == mergedrules.MOST_PROBLEMS
    assert str(last.problem) == "resource-qos-config: has more faults than are listed"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(pairs_of(210, "1M"), "more than 40000 pairs, the most that can be checked", id="nothing is wrong"),
        pytest.param(
            pairs_of(200, "500G", {"nodeSelector": {"matchExpressions": [{"key": "z", "operator": "DoesNotExist"}]}}),
            "more than 4000 pairs of them might have a node together, the most that can be checked",
            id="nodes of an earlier entry",
        ),
    ],
)
def test_more_pairs_than_can_be_checked_are_refused(data: dict[str, str], why: str) -> None:
    (violation,) = [each for each in checks.check(data) if each.reason is PARAMETER]
    assert violation.problem.path == "resource-qos-config" and why in violation.problem.message


def test_pairs_that_no_node_can_be_of_are_not_counted() -> None:
    """However many are wrong: most are told apart by their values alone."""
    pools = [{"matchLabels": {"pool": f"p{number}"}} for number in range(150)]
    asking = [{"nodeSelector": pool, **network(lsClass="1000G")} for pool in pools]
    having = [{"nodeSelector": pool, "totalNetworkBandwidth": f"{n + 1}G"} for n, pool in enumerate(pools)]
    assert checks.check(qos({}, *asking[:-1], {**asking[-1], **network(lsClass="1G")}) | bandwidth("0", *having)) != []
    fitting = [{**entry, "totalNetworkBandwidth": "1000G"} for entry in having[:149]]
    wide = [{**entry, **network(lsClass="900G")} for entry in asking[:149]]
    assert checks.check(qos({}, *wide) | bandwidth("0", *fitting, having[-1])) == []


def test_more_entries_than_can_be_compared_are_refused() -> None:
    many = [{"matchLabels": {"pool": f"p{number}"}} for number in range(checks.MOST_ENTRIES + 1)]
    assert checks.check(selecting(*many[:-1])) == []
    place = "colocation-config.nodeConfigs"
    assert messages(selecting(*many)) == [
        (PARAMETER, f"{place}: has {len(many)} entries: {checks.MOST_ENTRIES} are the most that can be checked")
    ]


BAD_BURST, WORSE_BURST = (
    {"cpu-burst-config": json.dumps({"clusterStrategy": {"cpuBurstPercent": n}})} for n in (0, -1)
)


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        pytest.param(BAD_BURST, BAD_BURST | CHART, [], id="wrong already, and unchanged"),
        pytest.param(
            BAD_BURST, WORSE_BURST, ["cpu-burst-config.clusterStrategy.cpuBurstPercent"], id="changed, and still wrong"
        ),
        pytest.param(
            BAD_BURST,
            {key: f"{text}\n" for key, text in BAD_BURST.items()},
            ["cpu-burst-config.clusterStrategy.cpuBurstPercent"],
            id="changed elsewhere",
        ),
        pytest.param({}, BAD_BURST, ["cpu-burst-config.clusterStrategy.cpuBurstPercent"], id="new"),
        pytest.param(
            qos(network(lsClass="6G", beClass="4G")) | bandwidth("10G"),
            qos(network(lsClass="6G", beClass="4G")) | bandwidth("1G"),
            [f"{CLUSTER}.{LS}", f"{CLUSTER}.{BE}"],
            id="an unchanged key that another one makes wrong",
        ),
    ],
)
def test_what_a_change_is_refused_for(old: dict[str, str], new: dict[str, str], paths: list[str]) -> None:
    assert [each.problem.path for each in checks.check(new, old=old)] == paths


@pytest.mark.parametrize(
    ("data", "form"),
    [
        ({"colocation-config": '{"degradeTimeMinutes": 0}'},
         {"reason": "ConfigParamInvalid", "message": "colocation-config.degradeTimeMinutes: 0 is less than 1"}),
        ({"colocation-config": "7"},
         {"reason": "ConfigParamInvalid", "message": "colocation-config: 7 is not an object"}),
    ],
)  # fmt: skip
def test_the_form_that_upstreams_clients_parse(data: dict[str, str], form: Any) -> None:
    (violation,) = checks.check(data)
    text = violation.upstream_form()
    assert text.startswith('___{"reason":')
    assert json.loads(text.removeprefix("___").removesuffix("___")) == form


def test_upstreams_form_of_a_conflict() -> None:
    conflict = checks.check(selecting(A, A, names="xy"), [("n", {"pool": "a"})])[-1]
    assert json.loads(conflict.upstream_form().strip("_")) == {
        "reason": "ExistNodeConfict",
        "message": {"config": "colocation-config", "strategies": ["x", "y"], "exampleNodes": ["n"]},
    }


FIELD_VALUES: st.SearchStrategy[object] = st.sampled_from(
    [-2, 0, 0.5, 1, 30, 70, 101, True, False, None, "", "cpuset", "1G", "usage", [], {}, {"policy": "psi"}]
)
STRATEGIES = st.dictionaries(
    st.sampled_from([
        "enable", "cpuReclaimThresholdPercent", "resourceDiffThreshold", "cpuCalculatePolicy", "lsClass", "policy",
        "memoryEvictThresholdPercent", "memoryEvictLowerPercent", "cpuSuppressPolicy", "cpuBurstPercent", "name",
        "totalNetworkBandwidth", "watermarkScaleFactor", "applications", "defaultRatio", "resourceAmplificationRatio",
        "cpuSuppress",
    ]),
    FIELD_VALUES,
    max_size=4,
)  # fmt: skip
ENTRIES = st.tuples(STRATEGIES, st.sampled_from([None, {}, A, B, IN_AB, "x", {"matchExpressions": [{}]}])).map(
    lambda drawn: {**drawn[0], "nodeSelector": drawn[1]}
)


@given(st.sampled_from(list(LAYOUTS)), STRATEGIES, st.lists(ENTRIES, max_size=3))
def test_loading_replaces_nothing_that_the_checks_let_pass(key: str, cluster: Any, entries: Any) -> None:
    data = text_of(key, cluster, *entries)
    refused = {each.problem.path for each in checks.check(data)}
    assert {each.problem.path for each in load(data).rejected} <= refused


@given(st.dictionaries(st.sampled_from(list(LAYOUTS)), st.text()), st.booleans())
def test_nothing_raises(data: dict[str, str], names_required: bool) -> None:
    checks.check(data, NODES, names_required=names_required, old={})
