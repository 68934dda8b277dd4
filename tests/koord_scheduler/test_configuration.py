"""A KubeSchedulerConfiguration: what is read of it, what is told, and that nothing is passed over in silence."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from koord.model.gang import GangDefaults, MatchPolicy
from koord.model.scheduling import pods
from koord.model.scheduling.numa import CPUBindPolicy
from koord.model.scheduling.pods import TopologySpreadConstraint
from koord.quota.forest import QuotaRules
from koord.scheduling.defaults import default_plugins
from koord.scheduling.loadsettings import LoadSettings
from koord.scheduling.plugin import Plugin
from koord.scheduling.plugins.elasticquota import ElasticQuota
from koord.scheduling.plugins.koordinator import NodeResourcesFitPlus, ResourceScore, ScarceResourceAvoidance
from koord.scheduling.plugins.loadaware import LoadAwareScheduling
from koord.scheduling.plugins.nodenumaresource import NodeNUMAResource, Scoring
from koord.scheduling.plugins.nodes import NodeAffinity
from koord.scheduling.plugins.podaffinity import InterPodAffinity
from koord.scheduling.plugins.resources import (
    NodeResourcesBalancedAllocation,
    NodeResourcesFit,
    RequestedToCapacityRatio,
    least_allocated,
    most_allocated,
)
from koord.scheduling.plugins.spread import PodTopologySpread
from koord.scheduling.preemption import CandidateCount
from koord.scheduling.queuedpod import BackoffTimes
from koord.service.options import OptionError
from koord_scheduler import component, configuration, program
from koord_scheduler.configuration import Configuration, ConfigurationError
from koord_scheduler.pluginargs import CoschedulingSettings
from koord_scheduler.profiles import Profile

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
WITHOUT_SCORE = (
    "NodeName",
    "NodeUnschedulable",
    "NodePorts",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeZone",
    "VolumeBinding",
)
DEFAULTS = {each.plugin.name: each.weight for each in default_plugins()}
FIT, AFFINITY, SPREAD = "NodeResourcesFit", "NodeAffinity", "PodTopologySpread"


def read(**document: Any) -> Configuration:
    return configuration.parse(json.dumps(HEAD | document), "f")


def problems(**document: Any) -> list[str]:
    """The lines of the error, without the file's name."""
    with pytest.raises(ConfigurationError) as error:
        read(**document)
    return [line.removeprefix("f: ") for line in str(error.value).splitlines()]


def profile(plugins: Any = None, arguments: Mapping[str, Any] | None = None) -> Profile:
    config = [{"name": name, "args": args} for name, args in (arguments or {}).items()]
    (found,) = read(profiles=[{"schedulerName": "s", "plugins": plugins, "pluginConfig": config}]).profiles
    return found


def named(names: Sequence[str]) -> list[dict[str, Any]]:
    """Entries of a plugin set: ``Name`` or ``Name=weight``."""
    return [
        {"name": name, **({"weight": int(weight)} if weight else {})}
        for name, _, weight in (each.partition("=") for each in names)
    ]


def plugin_set(enabled: Sequence[str] = (), disabled: Sequence[str] = ()) -> dict[str, Any]:
    return {"enabled": named(enabled), "disabled": named(disabled)}


# what it says


def test_a_file_that_says_nothing_has_the_defaults() -> None:
    found = read()
    assert [(each.name, each.preemption) for each in found.profiles] == [("koord-scheduler", CandidateCount(10, 100))]
    assert {each.plugin.name: each.weight for each in found.profiles[0].plugins} == DEFAULTS
    assert (found.backoff, found.lease, found.options) == (BackoffTimes(1, 10), "koord-scheduler", {})
    assert (found.notes, found.missing) == ((), ())


def test_yaml_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npodMaxBackoffSeconds: 20\n"
    )
    assert configuration.read(file).backoff == BackoffTimes(1, 20)


@pytest.mark.parametrize(
    ("document", "options", "lease"),
    [
        ({"clientConnection": {"kubeconfig": "/k", "qps": 70, "burst": 90}},
         {"kubeconfig": "/k", "rest_config_qps": 70.0, "rest_config_burst": 90}, "koord-scheduler"),
        ({"clientConnection": {"kubeconfig": "", "qps": 0, "burst": 0}}, {}, "koord-scheduler"),
        ({"leaderElection": {"leaderElect": False}}, {"enable_leader_election": False}, "koord-scheduler"),
        ({"leaderElection": {"leaderElect": True, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s",
                             "resourceLock": "leases", "resourceName": "l", "resourceNamespace": "n"}},
         {"enable_leader_election": True, "leader_election_namespace": "n"}, "l"),
    ],
)  # fmt: skip
def test_options(document: dict[str, Any], options: dict[str, Any], lease: str) -> None:
    found = read(**document)
    assert (found.options, found.lease) == (options, lease)


def test_what_has_no_effect_is_said() -> None:
    assert read(enableProfiling=False, enableContentionProfiling=False, delayCacheUntilActive=False).notes == ()
    found = read(
        parallelism=8,
        percentageOfNodesToScore=50,
        enableProfiling=True,
        enableContentionProfiling=True,
        delayCacheUntilActive=True,
        clientConnection={"contentType": "application/vnd.kubernetes.protobuf"},
        profiles=[
            {
                "percentageOfNodesToScore": 30,
                "plugins": {
                    "multiPoint": plugin_set(disabled=[SPREAD]),
                    "preFilter": plugin_set([SPREAD, AFFINITY], [FIT, SPREAD, "DynamicResources"]),
                    "preEnqueue": plugin_set(disabled=["SchedulingGates"]),
                    "reserve": plugin_set(disabled=["*"]),
                },
                "pluginConfig": [{"name": SPREAD}],
            },
        ],
    )
    assert list(found.notes) == [
        "parallelism: 8 has no effect: all nodes are looked at at once",
        "percentageOfNodesToScore: 50 has no effect: all nodes are looked at",
        "enableProfiling: True has no effect: no profile is served",
        "enableContentionProfiling: True has no effect: no profile is served",
        "delayCacheUntilActive: True has no effect: every replica follows the cluster",
        "clientConnection.contentType: 'application/vnd.kubernetes.protobuf' has no effect: requests and answers are"
        " JSON",
        "profiles[0].percentageOfNodesToScore: 30 has no effect: all nodes are looked at",
        "profiles[0].pluginConfig[0].name: 'PodTopologySpread' has no effect: it is not enabled",
        "profiles[0].plugins.preFilter.enabled[0].name: 'PodTopologySpread' has no effect: it is not switched at"
        " preFilter",
        "profiles[0].plugins.preFilter.disabled[0].name: 'NodeResourcesFit' has no effect: it is not switched at"
        " preFilter",
        "profiles[0].plugins.preEnqueue.disabled[0].name: 'SchedulingGates' has no effect: it is not switched at"
        " preEnqueue",
    ]


@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        (None, ["koord-scheduler"]),
        ([], ["koord-scheduler"]),
        ([{}], ["default-scheduler"]),
        ([{"schedulerName": "a"}, {"schedulerName": "b"}], ["a", "b"]),
    ],
)
def test_names_of_profiles(profiles: Any, names: list[str]) -> None:
    assert [each.name for each in read(profiles=profiles).profiles] == names


# which plugins


def changed(**weights: int | None) -> dict[str, int]:
    """The default plugins with other weights; None: without it."""
    merged: dict[str, int | None] = {**DEFAULTS, **weights}
    return {name: weight for name, weight in merged.items() if weight is not None}


@pytest.mark.parametrize(
    ("plugins", "weights"),
    [
        pytest.param(None, DEFAULTS, id="none said"),
        pytest.param({"multiPoint": plugin_set()}, DEFAULTS, id="nothing said"),
        pytest.param({"multiPoint": plugin_set([AFFINITY + "=7"])}, changed(NodeAffinity=7), id="another weight"),
        pytest.param({"score": plugin_set([AFFINITY + "=7"])}, changed(NodeAffinity=7), id="weight at score"),
        pytest.param({"score": plugin_set([AFFINITY])}, changed(NodeAffinity=1), id="no weight at score is 1"),
        pytest.param(
            {"score": plugin_set([AFFINITY + "=7"]), "multiPoint": plugin_set([AFFINITY + "=5"])},
            changed(NodeAffinity=7),
            id="score before multiPoint",
        ),
        pytest.param({"multiPoint": plugin_set(disabled=[SPREAD])}, changed(PodTopologySpread=None), id="disabled"),
        pytest.param({"score": plugin_set(disabled=[SPREAD])}, changed(PodTopologySpread=0), id="no score"),
        pytest.param(
            {"score": plugin_set(disabled=["ImageLocality"])}, changed(ImageLocality=None), id="nothing is left"
        ),
        pytest.param(
            {"score": plugin_set([FIT + "=5"], ["*"])},
            {
                name: 5 if name == FIT else int(name in WITHOUT_SCORE)
                for name in DEFAULTS
                if name not in ("ImageLocality", "NodeResourcesBalancedAllocation")
            },
            id="one score",
        ),
        pytest.param(
            {"multiPoint": plugin_set([FIT, "PrioritySort", "DefaultBinder"], ["*"])}, {FIT: 1}, id="one plugin"
        ),
        pytest.param(
            {"score": plugin_set(["NodeResourcesFitPlus=3"]), "multiPoint": plugin_set(["ScarceResourceAvoidance"])},
            {**DEFAULTS, "ScarceResourceAvoidance": 1, "NodeResourcesFitPlus": 3},
            id="Koordinator's",
        ),
    ],
)
def test_weights(plugins: Any, weights: dict[str, int]) -> None:
    assert {each.plugin.name: each.weight for each in profile(plugins).plugins} == weights


@pytest.mark.parametrize(
    ("plugins", "filters"),
    [
        pytest.param({"filter": plugin_set(disabled=["NodePorts"])}, None, id="one is disabled"),
        pytest.param({"filter": plugin_set([FIT], ["*"])}, [FIT], id="all but one"),
        pytest.param({"filter": plugin_set(["NodeName", FIT], ["*"])}, ["NodeName", FIT], id="in the order named"),
        pytest.param(
            {"filter": plugin_set([FIT]), "multiPoint": plugin_set(["NodeName", FIT, AFFINITY], ["*"])},
            [FIT, "NodeName", AFFINITY],
            id="named at the point comes first",
        ),
        pytest.param(
            {"filter": plugin_set(["NodePorts"]), "multiPoint": plugin_set([FIT], ["*"])},
            [FIT, "NodePorts"],
            id="named at the point alone comes last",
        ),
        pytest.param({"multiPoint": plugin_set(["NodeName"], ["NodeName"])}, ..., id="disabled and enabled comes last"),
    ],
)
def test_filters(plugins: dict[str, Any], filters: Any) -> None:
    multi = plugins.get("multiPoint")
    if multi and {"name": "*"} in multi["disabled"]:
        multi["enabled"] += named(["PrioritySort", "DefaultBinder"])
    by_default = [each.plugin.name for each in default_plugins()]
    scores_only = ("NodeResourcesBalancedAllocation", "ImageLocality")
    if filters is None:
        filters = [name for name in by_default if name not in ("NodePorts", *scores_only)]
    elif filters is ...:
        filters = [name for name in by_default if name not in ("NodeName", *scores_only)] + ["NodeName"]
    found = profile(plugins).plugins
    assert [each.plugin.name for each in found if each.filters and each.plugin.name not in scores_only] == filters


@pytest.mark.parametrize(
    ("plugins", "preemption"),
    [
        ({"postFilter": plugin_set(disabled=["*"])}, None),
        ({"postFilter": plugin_set(disabled=["DefaultPreemption"])}, None),
        ({"multiPoint": plugin_set(disabled=["DefaultPreemption"])}, None),
        ({"postFilter": plugin_set(["DefaultPreemption"], ["*"])}, CandidateCount()),
    ],
)
def test_preemption(plugins: Any, preemption: CandidateCount | None) -> None:
    assert profile(plugins).preemption == preemption


# arguments

TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
RATIO = {"shape": [{"utilization": 0, "score": 0}, {"utilization": 70, "score": 10}]}


@pytest.mark.parametrize(
    ("name", "args", "plugin"),
    [
        (FIT, {}, NodeResourcesFit()),
        (FIT, None, NodeResourcesFit()),
        (FIT, {"scoringStrategy": {"type": "LeastAllocated"}}, NodeResourcesFit()),
        (FIT, {"ignoredResources": ["a.b/c"], "ignoredResourceGroups": ["d.e"]},
         NodeResourcesFit(ignored=frozenset(("a.b/c", "d.e/")))),
        (FIT, {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 5}, {"name": "x/y"},
                                                                         {"name": "cpu", "weight": 2}]}},
         NodeResourcesFit({"cpu": 7, "x/y": 1}, most_allocated)),
        (FIT, {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": RATIO}},
         NodeResourcesFit(strategy=RequestedToCapacityRatio(((0, 0), (70, 100))))),
        ("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu", "weight": 1}, {"name": "x/y"}]},
         NodeResourcesBalancedAllocation(("cpu", "x/y"))),
        ("NodeResourcesBalancedAllocation", {}, NodeResourcesBalancedAllocation()),
        (AFFINITY, {}, NodeAffinity()),
        (AFFINITY, {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]},
                                      "preferredDuringSchedulingIgnoredDuringExecution":
                                      [{"weight": 5, "preference": TERM}]}},
         NodeAffinity(pods.NodeAffinity(
             required=pods.NodeSelector(node_selector_terms=(pods.NodeSelectorTerm(match_expressions=(
                 pods.NodeSelectorRequirement("disk", "In", ("ssd",)),)),)),
             preferred=(pods.PreferredSchedulingTerm(weight=5, preference=pods.NodeSelectorTerm(match_expressions=(
                 pods.NodeSelectorRequirement("disk", "In", ("ssd",)),))),)))),
        (SPREAD, {"defaultingType": "System"}, PodTopologySpread()),
        (SPREAD, {"defaultingType": "List"}, PodTopologySpread((), False)),
        (SPREAD, {"defaultingType": "List", "defaultConstraints":
                  [{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3}]},
         PodTopologySpread((TopologySpreadConstraint(max_skew=2, topology_key="zone",
                                                     when_unsatisfiable="DoNotSchedule", min_domains=3),), False)),
        ("InterPodAffinity", {}, InterPodAffinity(1, True)),
        ("InterPodAffinity", {"hardPodAffinityWeight": 0, "ignorePreferredTermsOfExistingPods": True},
         InterPodAffinity(0, False)),
        ("NodeResourcesFitPlus", {"resources": {"cpu": {"type": "LeastAllocated", "weight": 1},
                                                "nvidia.com/gpu": {"type": "MostAllocated", "weight": 2}}},
         NodeResourcesFitPlus({"cpu": ResourceScore(least_allocated, 1),
                               "nvidia.com/gpu": ResourceScore(most_allocated, 2)})),
        ("NodeNUMAResource", {}, NodeNUMAResource()),
        ("NodeNUMAResource", {"defaultCPUBindPolicy": "SpreadByPCPUs",
                              "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 2}]},
                              "numaScoringStrategy": {"resources": [{"name": "memory"}]}},
         NodeNUMAResource(CPUBindPolicy.SPREAD_BY_PCPUS, Scoring(most_allocated, (("cpu", 2),)),
                          Scoring(weights=(("memory", 1),)))),
        ("ScarceResourceAvoidance", {"resources": ["nvidia.com/gpu"]},
         ScarceResourceAvoidance(frozenset(("nvidia.com/gpu",)))),
    ],
)  # fmt: skip
def test_arguments(name: str, args: Any, plugin: Plugin) -> None:
    plugins = None if name in DEFAULTS else {"score": plugin_set([name])}
    made = profile(plugins, {name: args}).plugins
    assert [each.plugin for each in made if each.plugin.name == name] == [plugin]
    typed = {**(args or {}), "apiVersion": HEAD["apiVersion"], "kind": f"{name}Args"}
    assert plugin in [each.plugin for each in profile(plugins, {name: typed}).plugins]


def test_arguments_of_parts_of_the_scheduler() -> None:
    found = profile(
        None,
        {
            "DefaultPreemption": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 7},
            "VolumeBinding": {"bindTimeoutSeconds": 30},
        },
    )
    assert (found.preemption, found.volume_binding.bind_timeout_s) == (CandidateCount(0, 7), 30)


ARGUMENTS = "profiles[0].pluginConfig[0].args"


@pytest.mark.parametrize(
    ("name", "args", "lines"),
    [
        (FIT, {"kind": "Other", "apiVersion": "v1"},
         ["kind: 'Other' is not NodeResourcesFitArgs", "apiVersion: 'v1' is not kubescheduler.config.k8s.io/v1"]),
        (FIT, {"scoring": 3}, ["scoring: 3 has no meaning: there is no such field"]),
        (FIT, {"scoringStrategy": {"types": "LeastAllocated", "type": "Least"}},
         ["scoringStrategy.types: 'LeastAllocated' has no meaning: there is no such field",
          "scoringStrategy.type: 'Least' is not one of LeastAllocated, MostAllocated, RequestedToCapacityRatio"]),
        (FIT, {"scoringStrategy": {}},
         ["scoringStrategy.type: '' is not one of LeastAllocated, MostAllocated, RequestedToCapacityRatio"]),
        (FIT, {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 101}, {"weight": 1}]
                                   }},
         ["scoringStrategy.resources[0].weight: 101 is not in 0..100", "scoringStrategy.resources[1]: an object lacks "
          "name"]),
        (FIT, {"ignoredResources": ["a b"], "ignoredResourceGroups": ["a/b"]},
         ["ignoredResources[0]: 'a b' is not the name of a resource",
          "ignoredResourceGroups[0]: 'a/b' has a slash: a group is what is before that"]),
        (FIT, {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
         ["scoringStrategy.requestedToCapacityRatio.shape: a list has no point"]),
        (FIT, {"scoringStrategy": {"type": "LeastAllocated", "requestedToCapacityRatio": RATIO}},
         ["scoringStrategy.requestedToCapacityRatio: an object is of no use with the type LeastAllocated"]),
        (FIT, {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": [
            {"utilization": 50, "score": 1}, {"utilization": 50, "score": 2}, {"utilization": 101},
            {"utilization": 90, "score": 11}]}}},
         ["scoringStrategy.requestedToCapacityRatio.shape[2].utilization: 101 is not in 0..100",
          "scoringStrategy.requestedToCapacityRatio.shape[3].score: 11 is not in 0..10",
          "scoringStrategy.requestedToCapacityRatio.shape[1].utilization: 50 is not more than the 50 of the point "
          "before"]),
        ("NodeResourcesBalancedAllocation", {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu"}]},
         ["resources[0].weight: 2 is not 1", "resources[1].name: 'cpu' is named before"]),
        (AFFINITY, {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 0, "preference": {"matchExpressions": [{"key": "a", "operator": "In"},
                                                              {"key": "b", "operator": "Like"},
                                                              {"key": "c", "operator": "Gt", "values": ["x"]}],
                                         "matchFields": [{"key": "a", "operator": "In", "values": ["b"]}]}}]}},
         [f"addedAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].{line}" for line in (
             "weight: 0 is not in 1..100",
             "preference.matchExpressions[0]: 'a' has values that In does not take: none",
             "preference.matchExpressions[1]: 'b' has an operator that there is not: 'Like'",
             "preference.matchExpressions[2]: 'c' has values that Gt does not take: x",
             "preference.matchFields[0]: 'a' is not metadata.name, In or NotIn, and one name")]),
        (SPREAD, {"defaultConstraints": [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}]},
         ["defaultingType: 'System' does not go with defaultConstraints: say List"]),
        (SPREAD, {"defaultingType": "List", "defaultConstraints": [
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Never", "labelSelector": {}},
            {"maxSkew": 1, "topologyKey": "", "whenUnsatisfiable": "Never"}]},
         ["defaultConstraints[0].maxSkew: 0 is not more than 0",
          "defaultConstraints[0].topologyKey: '' is not the key of a label",
          "defaultConstraints[0].whenUnsatisfiable: 'Never' is not one of DoNotSchedule, ScheduleAnyway",
          "defaultConstraints[0].labelSelector: an object is not for a default: it follows from each pod",
          "defaultConstraints[1].topologyKey: '' is not the key of a label",
          "defaultConstraints[1].whenUnsatisfiable: 'Never' is not one of DoNotSchedule, ScheduleAnyway",
          "defaultConstraints[1]: '' is there before, for the same case"]),
        ("InterPodAffinity", {"hardPodAffinityWeight": 101, "ignorePreferredTermsOfExistingPods": 1},
         ["hardPodAffinityWeight: 101 is not in 0..100",
          "ignorePreferredTermsOfExistingPods: 1 is neither true nor false"]),
        ("DefaultPreemption", {"minCandidateNodesPercentage": 101, "minCandidateNodesAbsolute": -1},
         ["minCandidateNodesPercentage: 101 is not in 0..100",
          "minCandidateNodesAbsolute: -1 is not in 0..2147483647"]),
        ("DefaultPreemption", {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 0},
         ["minCandidateNodesPercentage: 0 is 0 while minCandidateNodesAbsolute is 0, too"]),
        ("VolumeBinding", {"bindTimeoutSeconds": -1, "shape": []},
         ["bindTimeoutSeconds: -1 is not in 0..2147483647",
          "shape: a list cannot be followed: capacities of storage are not scored"]),
        ("NodeResourcesFitPlus", {"resources": {"cpu": {"type": "RequestedToCapacityRatio", "weight": 1}}},
         ["resources.cpu.type: 'RequestedToCapacityRatio' is not one of LeastAllocated, MostAllocated"]),
        ("NodeName", {"a": 1}, [": an object is given to NodeName, which takes no arguments"]),
        (FIT, 3, [": 3 is not an object"]),
    ],
)  # fmt: skip
def test_wrong_arguments(name: str, args: Any, lines: list[str]) -> None:
    found = problems(profiles=[{"pluginConfig": [{"name": name, "args": args}]}])
    assert [line.removeprefix(ARGUMENTS).removeprefix(".") for line in found] == lines


# what is wrong


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": None},
         ["apiVersion: 'kubescheduler.config.k8s.io/v1beta3' is not kubescheduler.config.k8s.io/v1",
          "kind: None is not KubeSchedulerConfiguration"]),
        ({"parallelizm": 3, "healthzBindAddress": "a"},
         ["parallelizm: 3 has no meaning: there is no such field",
          "healthzBindAddress: 'a' has no meaning: there is no such field"]),
        ({"parallelism": 0, "percentageOfNodesToScore": 101, "podInitialBackoffSeconds": 0},
         ["parallelism: 0 is not in 1..2147483647", "percentageOfNodesToScore: 101 is not in 0..100",
          "podInitialBackoffSeconds: 0 is not in 1..86400"]),
        ({"podInitialBackoffSeconds": 20},
         ["podMaxBackoffSeconds: 10 is less than podInitialBackoffSeconds, which is 20"]),
        ({"clientConnection": {"qps": -1, "burst": "many"}},
         ["clientConnection.qps: -1 is less than 0", "clientConnection.burst: 'many' is not a whole number"]),
        ({"leaderElection": {"leaseDuration": "60s", "renewDeadline": "soon", "resourceLock": "endpoints"}},
         ["leaderElection.leaseDuration: '60s' cannot be followed: it is always 15s",
          "leaderElection.renewDeadline: 'soon' is not a duration such as 300ms, 3s or 1m30s",
          "leaderElection.resourceLock: 'endpoints' is not leases"]),
        ({"profiles": {}}, ["profiles: an object is not a list"]),
        ({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}, {}, 3]},
         ["profiles[1].schedulerName: 'a' is the name of an earlier profile",
          "profiles[2].schedulerName: '' is no name: each of several profiles needs one",
          "profiles[3]: 3 is not an object",
          "profiles[3].schedulerName: '' is no name: each of several profiles needs one"]),
        ({"profiles": [{"plugins": {"bindings": {}, "score": plugin_set(["NodeName", "Nodes", FIT, FIT]),
                                    "filter": plugin_set(disabled=["EBSLimits"]),
                                    "reserve": {"enable": []}, "permit": 3}}]},
         ["profiles[0].plugins.bindings: 'bindings' is no extension point",
          "profiles[0].plugins.score.enabled[0].name: 'NodeName' does nothing at score",
          "profiles[0].plugins.score.enabled[1].name: 'Nodes' is no plugin that there is",
          "profiles[0].plugins.score.enabled[3].name: 'NodeResourcesFit' is enabled twice",
          "profiles[0].plugins.filter.disabled[0].name: 'EBSLimits' is no plugin that there is",
          "profiles[0].plugins.reserve.enable: a list has no meaning: there is no such field",
          "profiles[0].plugins.permit: 3 is not an object"]),
        ({"profiles": [{"plugins": {"queueSort": plugin_set(disabled=["*"]), "bind": plugin_set(["Reservation"], ["*"])
                                    }}]},
         ["profiles[0].plugins.queueSort: '' is not PrioritySort alone",
          "profiles[0].plugins.bind: 'Reservation' lacks DefaultBinder"]),
        ({"profiles": [{"pluginConfig": [{"name": FIT}, {"name": FIT}, {"name": "Nodes"}, {"args": {}}]}]},
         ["profiles[0].pluginConfig[1].name: 'NodeResourcesFit' has its arguments before",
          "profiles[0].pluginConfig[2].name: 'Nodes' is no plugin that there is",
          "profiles[0].pluginConfig[3].name: '' is no plugin that there is"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_all_at_once(document: dict[str, Any], lines: list[str]) -> None:
    assert problems(**document) == lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "does not exist"),
        ("a: [", "is not YAML"),
        ("- a", "must be a mapping"),
        ("", "apiVersion: None is not kubescheduler.config.k8s.io/v1"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str | None, line: str) -> None:
    file = tmp_path / "c.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        configuration.read(file)
    assert str(error.value).startswith(f"{file}: {line}")


# the command line


def test_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(HEAD | {"clientConnection": {"qps": 5, "burst": 6}, "profiles": [{}]}))
    options, found = program.load(["--config", str(file), "--rest-config-burst=9"])
    assert (options.rest_config_qps, options.rest_config_burst) == (5, 9)
    assert [each.name for each in found.profiles] == ["default-scheduler"]
    options, found = program.load([])
    assert (options.rest_config_qps, [each.name for each in found.profiles]) == (1000, ["koord-scheduler"])


def test_each_problem_of_the_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps(HEAD | {"a": 1, "b": 2}))
    with pytest.raises(OptionError) as error:
        program.load([f"--config={file}"])
    assert str(error.value).splitlines() == [
        f"{file}: {key}: {value} has no meaning: there is no such field" for key, value in (("a", 1), ("b", 2))
    ]


# Koordinator's chart

KOORDINATOR = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceLock: leases, resourceName: ks, resourceNamespace: koordinator-system}
profiles:
- schedulerName: koord-scheduler
  plugins:
    preEnqueue: {enabled: [{name: Coscheduling}]}
    queueSort: {disabled: [{name: "*"}], enabled: [{name: PrioritySort}]}
    preFilter:
      enabled: [{name: SchedulingHint}, {name: Coscheduling}, {name: Reservation}, {name: NodeNUMAResource},
                {name: DeviceShare}, {name: ElasticQuota}]
    filter: {enabled: [{name: Reservation}, {name: LoadAwareScheduling}, {name: NodeNUMAResource}, {name: DeviceShare}]}
    postFilter:
      disabled: [{name: "*"}]
      enabled: [{name: Reservation}, {name: Coscheduling}, {name: ElasticQuota}, {name: DefaultPreemption}]
    preScore: {enabled: [{name: Reservation}, {name: Coscheduling}]}
    score:
      enabled: [{name: LoadAwareScheduling, weight: 1}, {name: NodeNUMAResource, weight: 1},
                {name: DeviceShare, weight: 1}, {name: Reservation, weight: 5000}, {name: Coscheduling, weight: 1}]
    reserve:
      enabled: [{name: Reservation}, {name: LoadAwareScheduling}, {name: NodeNUMAResource}, {name: DeviceShare},
                {name: Coscheduling}, {name: ElasticQuota}]
    permit: {enabled: [{name: Coscheduling}]}
    preBind:
      enabled: [{name: NodeNUMAResource}, {name: DeviceShare}, {name: Reservation}, {name: Coscheduling},
                {name: DefaultPreBind}]
    bind: {disabled: [{name: "*"}], enabled: [{name: Reservation}, {name: DefaultBinder}]}
    postBind: {enabled: [{name: Coscheduling}]}
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy:
        type: LeastAllocated
        resources:
        - {name: cpu, weight: 1}
        - {name: memory, weight: 1}
        - {name: kubernetes.io/batch-cpu, weight: 1}
        - {name: kubernetes.io/batch-memory, weight: 1}
  - name: LoadAwareScheduling
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: LoadAwareSchedulingArgs
      filterExpiredNodeMetrics: false
      usageThresholds: {cpu: 65, memory: 95}
  - name: Coscheduling
    args: {kind: CoschedulingArgs, enablePreemption: true, awareNetworkTopology: true}
"""


def test_the_profile_of_koordinators_chart_is_accepted() -> None:
    found = configuration.parse(KOORDINATOR, "f")
    (only,) = found.profiles
    assert (only.name, only.preemption, found.lease) == ("koord-scheduler", CandidateCount(), "ks")
    assert {each.plugin.name: each.weight for each in only.plugins} == {
        **{"SchedulingHint": 1, "ElasticQuota": 1, "LoadAwareScheduling": 1, "NodeNUMAResource": 1},
        **DEFAULTS,
    }
    assert only.preempts_in_quota
    load = next(each.plugin for each in only.plugins if isinstance(each.plugin, LoadAwareScheduling))
    assert load.settings == LoadSettings(filters_expired=False)
    assert "NodeNUMAResource" in [each.name for each in only.reserve]
    assert "NodeNUMAResource" in [each.name for each in only.pre_bind]
    fit = next(each.plugin for each in only.plugins if each.plugin.name == FIT)
    batch = {"kubernetes.io/batch-cpu": 1, "kubernetes.io/batch-memory": 1}
    assert fit == NodeResourcesFit({"cpu": 1, "memory": 1, **batch})
    assert sorted(found.missing) == [
        *("DeviceShare", "Reservation"),
    ]
    assert only.coscheduling == CoschedulingSettings(is_preempting=True)
    (note,) = found.notes
    assert note.endswith("awareNetworkTopology: True has no effect: gangs do not go by the network yet")


def gang_args(**args: Any) -> dict[str, Any]:
    return {"pluginConfig": [{"name": "Coscheduling", "args": args}]}


@pytest.mark.parametrize(
    ("profile", "wanted"),
    [
        ({}, CoschedulingSettings()),
        (gang_args(), CoschedulingSettings()),
        (gang_args(defaultTimeout="90s"), CoschedulingSettings(GangDefaults(90.0))),
        (gang_args(enablePreemption=True), CoschedulingSettings(is_preempting=True)),
        (
            gang_args(defaultMatchPolicy="only-waiting"),
            CoschedulingSettings(GangDefaults(match_policy=MatchPolicy.ONLY_WAITING)),
        ),
        ({"plugins": {"multiPoint": {"disabled": [{"name": "Coscheduling"}]}}}, None),
        ({"plugins": {"permit": {"disabled": [{"name": "Coscheduling"}]}}}, None),
        ({"plugins": {"queueSort": {"disabled": [{"name": "*"}], "enabled": [{"name": "Coscheduling"}]}}},
         CoschedulingSettings()),
    ],
    ids=str,
)  # fmt: skip
def test_gangs(profile: dict[str, Any], wanted: CoschedulingSettings | None) -> None:
    (only,) = read(profiles=[{"schedulerName": "a", **profile}]).profiles
    assert only.coscheduling == wanted


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"defaultTimeout": "soon"}, "args.defaultTimeout: 'soon' is no duration of more than nothing"),
        ({"defaultTimeout": "0s"}, "args.defaultTimeout: '0s' is no duration of more than nothing"),
        ({"controllerWorkers": 0}, "args.controllerWorkers"),
        ({"defaultMatchPolicy": "never"}, "args.defaultMatchPolicy"),
        ({"gangs": 1}, "args.gangs: 1 has no meaning: there is no such field"),
    ],
    ids=str,
)
def test_arguments_of_gangs_that_are_wrong(args: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(profiles=[{"schedulerName": "a", **gang_args(**args)}])
    assert why in str(caught.value)


def test_what_upstream_has_and_we_do_not_is_left_out() -> None:
    found = read(profiles=[{"plugins": {"multiPoint": plugin_set(["DynamicResources"])}}])
    assert found.missing == ("DynamicResources",)
    assert {each.plugin.name: each.weight for each in found.profiles[0].plugins} == DEFAULTS


def test_pods_of_what_is_not_supported_are_not_said_to_be_placed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    component.tell(read(profiles=[{"schedulerName": "a", "plugins": {"multiPoint": plugin_set(["DynamicResources"])}}]))
    assert [each.getMessage() for each in caplog.records] == [
        "DynamicResources is not part of this version: a pod with spec.resourceClaims is not placed, and is told so",
        "GangScheduling is not part of this version: a pod with spec.workloadRef or spec.schedulingGroup is not "
        "placed, and is told so",
        "places the pods of a",
    ]


def test_what_is_missing_or_has_no_effect_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    arguments = [{"name": "DeviceShare", "args": {"a": 1}}]
    plugins = {point: plugin_set(["DeviceShare"]) for point in ("preFilter", "permit")}
    both = [{"schedulerName": name, "plugins": plugins, "pluginConfig": arguments} for name in ("a", "b")]
    component.tell(read(parallelism=8, profiles=both))
    unsupported, others = caplog.records[:2], caplog.records[2:]
    assert [each.getMessage().partition(" ")[0] for each in unsupported] == ["DynamicResources", "GangScheduling"]
    assert [(each.levelname, each.getMessage()) for each in others] == [
        ("WARNING", "the plugin DeviceShare is not part of this version: pods are placed without it"),
        ("INFO", "parallelism: 8 has no effect: all nodes are looked at at once"),
        ("INFO", "places the pods of a, b"),
    ]


def quota_profile(name: str = "a", **arguments: Any) -> dict[str, Any]:
    args = {"kind": "ElasticQuotaArgs", "apiVersion": "kubescheduler.config.k8s.io/v1", **arguments}
    return {
        "schedulerName": name,
        "plugins": {"preFilter": plugin_set(["ElasticQuota"]), "reserve": plugin_set(["ElasticQuota"])},
        "pluginConfig": [{"name": "ElasticQuota", "args": args}],
    }


def test_the_arguments_of_elastic_quotas() -> None:
    profile = quota_profile(
        delayEvictTime="90s", revokePodInterval="2s", monitorAllQuotas=True, enableCheckParentQuota=True,
        enableRuntimeQuota=False, enableMinQuotaScale=False, enableGuaranteeUsage=True,
        disableDefaultQuotaPreemption=False, defaultQuotaGroupMax={"cpu": "10", "memory": "1Gi"},
        systemQuotaGroupMax={"cpu": 2},
    )  # fmt: skip
    found = read(profiles=[profile])
    (plugin,) = [each.plugin for each in found.profiles[0].plugins if each.plugin.name == "ElasticQuota"]
    maximum = {
        "koordinator-default-quota": {"cpu": 10_000, "memory": 2**30}, "koordinator-system-quota": {"cpu": 2000},
    }  # fmt: skip
    assert plugin == ElasticQuota(False, True, QuotaRules(False, True, maximum), True, 90.0, 2.0, False)
    assert not found.profiles[0].preempts_in_quota and not found.notes
    plugins = [each.plugin for each in read(profiles=[quota_profile()]).profiles[0].plugins]
    assert ElasticQuota() in plugins


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"delayEvictTime": "soon"}, "args.delayEvictTime: 'soon' is no duration of more than nothing"),
        ({"revokePodInterval": "0s"}, "args.revokePodInterval: '0s' is no duration of more than nothing"),
        ({"defaultQuotaGroupMax": {"cpu": "-1"}}, "args.defaultQuotaGroupMax.cpu: '-1' is negative"),
        ({"hookPlugins": [{"key": "k"}]}, "args.hookPlugins: a list cannot be followed"),
        ({"monitorAllQuota": True}, "args.monitorAllQuota: True has no meaning"),
    ],
)
def test_wrong_arguments_of_elastic_quotas(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(profiles=[quota_profile(**arguments)])
    assert problem in str(raised.value)


def test_all_profiles_count_quotas_alike() -> None:
    both = [quota_profile("a"), quota_profile("b", enableCheckParentQuota=True)]
    assert len(read(profiles=both).profiles) == 2
    with pytest.raises(ConfigurationError) as raised:
        read(profiles=[quota_profile("a"), quota_profile("b", monitorAllQuotas=True)])
    assert "'b' has other arguments of ElasticQuota than an earlier profile" in str(raised.value)
