"""The key ``koord-config``, which makes ``extensions.koord`` of a NodeSLO: what each node gets, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord.model import schema
from koord.sloconfig import checks
from koord.sloconfig.checks import Reason
from koord.sloconfig.loading import Consequence, load

PARSE, PARAMETER, OVERLAP, EXISTING = Reason.PARSE, Reason.PARAMETER, Reason.OVERLAP, Reason.EXISTING_NODE
LEAF, KEPT = Consequence.LEAF_ABSENT, Consequence.KEY_KEPT
CLUSTER, ENTRY = "koord-config.clusterStrategy", "koord-config.nodeStrategies[0]"
POOL_A, POOL_B = ({"nodeSelector": {"matchLabels": {"pool": pool}}} for pool in "ab")


def suppress(**fields: Any) -> dict[str, Any]:
    return {"cpuSuppress": fields}


def data(cluster: Any, *entries: Any) -> dict[str, str]:
    return {"koord-config": json.dumps({"clusterStrategy": cluster, "nodeStrategies": entries})}


@pytest.mark.parametrize(
    ("config", "refused", "consequences"),
    [
        ({"koord-config": "{"}, [(PARSE, "koord-config: '{' is not JSON")], [KEPT]),
        ({"koord-config": "[]"}, [(PARAMETER, "koord-config: a list is not an object")], [KEPT]),
        (data(suppress(policy="psi")),
         [(PARAMETER, f"{CLUSTER}.cpuSuppress.policy: 'psi' is not one of slo, pressure")], [LEAF]),
        (data(suppress(ceilingPercent=101)),
         [(PARAMETER, f"{CLUSTER}.cpuSuppress.ceilingPercent: 101 is not in 1..100")], [LEAF]),
        (data(suppress(setPointMilliseconds=0)),
         [(PARAMETER, f"{CLUSTER}.cpuSuppress.setPointMilliseconds: 0 is not in 1..1000")], [LEAF]),
        (data(suppress(setPointMilliseconds=1.5)),
         [(PARAMETER, f"{CLUSTER}.cpuSuppress.setPointMilliseconds: 1.5 is not a whole number")], [LEAF]),
        (data({"cpuSuppress": 5}), [(PARAMETER, f"{CLUSTER}.cpuSuppress: 5 is not an object")], [KEPT]),
        (data({}, POOL_A | suppress(ceilingPercent=0)),
         [(PARAMETER, f"{ENTRY}.cpuSuppress.ceilingPercent: 0 is not in 1..100")], [LEAF]),
        (data(suppress(ceilingPercent=101), POOL_A | suppress(policy="psi"), POOL_B),
         [(PARAMETER, f"{CLUSTER}.cpuSuppress.ceilingPercent: 101 is not in 1..100"),
          (PARAMETER, f"{ENTRY}.cpuSuppress.policy: 'psi' is not one of slo, pressure")], [LEAF, LEAF]),
        (data({}, suppress(policy="pressure")),
         [(PARAMETER, f"{ENTRY}.nodeSelector: is missing, so the entry matches no node")], []),
        (data({}, {"nodeSelector": {}}), [(PARAMETER, f"{ENTRY}.nodeSelector: is empty")], []),
        (data({}, POOL_A, POOL_A),
         [(OVERLAP, "koord-config.nodeStrategies[1].nodeSelector: matches a node with the labels pool=a")], []),
    ],
    ids=[
        "no JSON", "a list", "a policy that there is not", "too much", "too little", "a part of a millisecond",
        "no object", "an entry", "the cluster and an entry", "an entry of nobody", "an entry of all",
        "entries of the same nodes",
    ],
)  # fmt: skip
def test_what_the_webhook_refuses_and_what_becomes_of_it_at_load(
    config: dict[str, str], refused: list[tuple[Reason, str]], consequences: list[Consequence]
) -> None:
    found = checks.check(config)
    assert [each.reason for each in found] == [reason for reason, _ in refused]
    assert [str(each.problem)[: len(text)] for each, (_, text) in zip(found, refused, strict=True)] == [
        text for _, text in refused
    ]
    assert [each.consequence for each in load(config).rejected] == consequences


def test_a_node_that_two_entries_match_is_refused() -> None:
    entries = [{"name": key, "nodeSelector": {"matchLabels": {key: "1"}}} for key in ("a", "b")]
    config = data({}, *entries)
    assert checks.check(config) == []
    (conflict,) = checks.check(config, [("n1", {"a": "1", "b": "1"})])
    assert (conflict.reason, conflict.key) == (EXISTING, "koord-config")
    (of_node,) = checks.check_node(load(config).config, "n1", {"a": "1", "b": "1"})
    assert of_node.reason is EXISTING


@pytest.mark.parametrize(
    ("config", "unknown"),
    [
        (data({}), ()),
        (data(suppress(policy="slo", setPointMilliseconds=1, ceilingPercent=100)), ()),
        (data({}, POOL_A | suppress(policy="pressure"), POOL_B), ()),
        (data({"cpuSupress": {}}), (f"{CLUSTER}.cpuSupress",)),
        (data({}, POOL_A | suppress(ceiling=1)), (f"{ENTRY}.cpuSuppress.ceiling",)),
        ({"koord-config": json.dumps(suppress(policy="pressure"))}, ("koord-config.cpuSuppress",)),
    ],
    ids=["nothing", "the bounds", "entries", "another field", "another field of an entry", "no clusterStrategy"],
)
def test_what_passes_and_what_is_told_of_it(config: dict[str, str], unknown: tuple[str, ...]) -> None:
    assert checks.check(config) == []
    loaded = load(config)
    assert (loaded.rejected, loaded.unknown) == ((), unknown)


@pytest.mark.parametrize(
    ("cluster", "entries", "of_a", "of_b"),
    [
        ({}, [], None, None),
        (suppress(policy="pressure"), [], suppress(policy="pressure"), suppress(policy="pressure")),
        ({}, [POOL_A | suppress(policy="pressure")], suppress(policy="pressure"), None),
        (suppress(policy="pressure", ceilingPercent=90), [POOL_A | suppress(ceilingPercent=80)],
         suppress(policy="pressure", ceilingPercent=80), suppress(policy="pressure", ceilingPercent=90)),
        (suppress(policy="pressure"), [POOL_A | suppress(policy="slo"), POOL_B | suppress(setPointMilliseconds=5)],
         suppress(policy="slo"), suppress(policy="pressure", setPointMilliseconds=5)),
        (suppress(policy="pressure"), [POOL_A], suppress(policy="pressure"), suppress(policy="pressure")),
        (suppress(policy="pressure"), [POOL_A | suppress(policy="psi", ceilingPercent=80)],
         suppress(policy="pressure", ceilingPercent=80), suppress(policy="pressure")),
    ],
    ids=[
        "nothing", "the cluster's", "a pool's alone", "a pool's over the cluster's", "each pool its own",
        "an entry that says nothing", "an entry with a bad leaf",
    ],
)  # fmt: skip
def test_what_each_node_gets(cluster: Any, entries: list[Any], of_a: Any, of_b: Any) -> None:
    config = load(data(cluster, *entries)).config
    for pool, expected in (("a", of_a), ("b", of_b)):
        spec, problems = config.node_slo({"pool": pool}, {})
        extensions = json.loads(schema.encode(spec)).get("extensions", {})
        assert (extensions.get("koord"), problems) == (expected, ())
