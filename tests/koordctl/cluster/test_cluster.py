"""``koordctl cluster``, ``get`` and ``explain node``: through the command line, of an API server in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from koordctl.cluster import names
from koordctl.exits import OK, REFUSED, UNREACHABLE, USAGE
from tests.koordctl.clusters import Cluster
from tests.koordctl.runs import koordctl
from tests.kube.server import Fault
from tests.support.cluster import METRICS, PROFILES, SLOS

# --- the API server --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("cluster",), ("get", "nodeslos"), ("explain", "pod", "a"), ("explain", "node", "n", "--overcommit")]
)
async def test_no_cluster_is_known(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, _, err = await koordctl(*arguments, f"--kubeconfig={tmp_path / 'none'}")
    assert (code, "no cluster is known" in err, "--kubeconfig" in err) == (UNREACHABLE, True, True)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "Looked at: --kubeconfig, $KUBECONFIG is not set, there is no {home}/.kube/config."),
        (
            {"KUBECONFIG": "/none/k"},
            "Looked at: --kubeconfig, $KUBECONFIG is '/none/k', there is no {home}/.kube/config.",
        ),
    ],
)
async def test_where_a_cluster_was_looked_for_is_said(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    variables = {"KUBECONFIG": None, "KUBERNETES_SERVICE_HOST": None, "HOME": str(tmp_path), **environment}
    code, _, err = await koordctl("cluster", **variables)  # type: ignore[arg-type]
    assert (code, said.format(home=tmp_path) in err) == (UNREACHABLE, True), err


async def test_a_right_that_lacks_is_said_with_what_to_do(cluster: Cluster, tmp_path: Path) -> None:
    cluster.server.faults.append(Fault("list", status=403, reason="Forbidden"))
    code, _, err = await cluster.run(tmp_path, "cluster")
    assert (code, "the API server answered 403" in err, "run koordctl where kubectl works, with yours" in err) == (
        3,
        True,
        True,
    )


async def test_the_shell_completes_names_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    asking = {"_KOORDCTL_COMPLETE": "bash_complete"}
    async with cluster.flags(tmp_path) as flag:
        file = flag.removeprefix("--kubeconfig=")
        for words, names in (
            ("koordctl explain node n", ["plain,node-1"]),
            ("koordctl get nodemetrics n", ["plain,node-1"]),
            ("koordctl get nodemetrics x", []),
        ):
            count = str(words.count(" "))
            _, out, err = await koordctl(COMP_WORDS=words, COMP_CWORD=count, KUBECONFIG=file, **asking)
            assert (out.split(), err) == (names, ""), words


async def test_an_api_server_that_refuses(cluster: Cluster, tmp_path: Path) -> None:
    cluster.server.faults.append(Fault("list", 403, "Forbidden"))
    code, _, err = await cluster.run(tmp_path, "cluster")
    assert (code, "403 Forbidden" in err) == (REFUSED, True)


async def test_a_cluster_without_any_crd(tmp_path: Path) -> None:
    bare = Cluster()
    for collection in list(bare.server.objects):
        if collection[1] != "nodes":
            del bare.server.objects[collection]
    code, out, _ = await bare.run(tmp_path, "cluster", "--fields", "name,protection")
    _, row, absence = out.splitlines()
    assert (code, row.split(), NO_POLICY in absence) == (OK, ["node-1", "none"], True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("get", "nodeslos", "a/b"), "Invalid value for NAME: 'a/b' cannot be"),
        (("get", "nodeslos", ".."), "Invalid value for NAME: '..' cannot be"),
        (("cluster", "--koord-namespace", "a/b"), "Invalid value for --koord-namespace: 'a/b' cannot be"),
        (("explain", "node", "n", "--overcommit", "--koord-namespace="), "Invalid value for --koord-namespace: ''"),
    ],
)
async def test_a_name_that_no_object_can_have(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, _, err = await cluster.run(tmp_path, *arguments)
    assert (code, says in err, cluster.server.requests) == (USAGE, True, [])


NO_POLICY = "there is no slo-controller-config in koordinator-system"


@pytest.mark.parametrize(
    "arguments", [("cluster",), ("explain", "node", "node-1", "--overcommit"), ("explain", "pod", "jobs/p")]
)
async def test_where_koord_is(cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    cluster.node("node-1", {})
    cluster.pod("p")
    cluster.move_config("koord")
    _, out, _ = await cluster.run(tmp_path, *arguments)
    assert (NO_POLICY in out, "does not enable" in out) == (True, False)
    _, out, _ = await cluster.run(tmp_path, *arguments, "--koord-namespace", "koord")
    assert (NO_POLICY in out, "does koord-manager run?" in out) == (False, True)


@pytest.mark.parametrize("arguments", [("cluster",), ("explain", "node", "node-1", "--overcommit")])
async def test_a_policy_that_is_gone_is_missed_also_where_a_node_offers(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    cluster.move_config("elsewhere")
    _, out, _ = await cluster.run(tmp_path, *arguments)
    assert (f"{NO_POLICY}: koord-manager goes by the last that it has read" in out, "offers nothing" in out) == (
        True,
        False,
    )


@pytest.mark.parametrize("arguments", [("cluster",), ("explain", "node", "node-1", "--overcommit")])
async def test_nothing_is_read_that_only_pods_need(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    await cluster.run(tmp_path, *arguments)
    listed = {path.rpartition("/")[2] for _, path, _, _ in cluster.server.requests}
    assert listed == {"configmaps", "nodes", "pods", "nodemetrics", "nodeslos"}


@pytest.mark.parametrize(
    ("arguments", "is_whole"),
    [
        (("cluster",), True),
        (("explain", "node", "node-1", "--overcommit"), False),
        (("explain", "pod", "jobs/bound"), False),
        (("explain", "pod", "jobs/pending"), True),
    ],
)
async def test_of_one_node_no_other_is_read(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], is_whole: bool
) -> None:
    cluster.pod("bound", 700, "node-1", "Running")
    cluster.pod("pending")
    await cluster.run(tmp_path, *arguments)
    selectors = {
        path.rpartition("/")[2]: query.get("fieldSelector", "")
        for verb, path, query, _ in cluster.server.requests
        if verb == "list"
    }
    named, bound = ("", "") if is_whole else ("metadata.name=node-1", "spec.nodeName=node-1")
    assert [selectors[kind] for kind in ("nodes", "nodemetrics", "nodeslos")] == [named] * 3
    assert selectors["pods"] == bound


# --- cluster ---------------------------------------------------------------------------------------------------------

SUPPRESSES = {"resourceUsedThresholdWithBE": {"enable": True}}


@pytest.mark.parametrize(
    ("ago_s", "slo", "protection", "remark"),
    [
        (None, SUPPRESSES, "none", "no agent reports"),
        (10, SUPPRESSES, "on", ""),
        (179, SUPPRESSES, "on", ""),
        (200, SUPPRESSES, "stale", "its agent reports no more"),
        (-30, SUPPRESSES, "on", ""),
        (10, {"resourceUsedThresholdWithBE": {"enable": False}}, "off", ""),
        (10, {"resourceUsedThresholdWithBE": None}, "off", ""),
        (10, None, "off", ""),
    ],
)
async def test_protection(tmp_path: Path, ago_s: float | None, slo: Any, protection: str, remark: str) -> None:
    cluster = Cluster()
    if ago_s is None:
        cluster.server.delete(METRICS, "", "node-1")
    else:
        cluster.report("node-1", ago_s)
    if slo is not None:
        cluster.server.put(SLOS, "", "node-1", spec=slo)
    _, out, _ = await cluster.run(tmp_path, "cluster", "-o", "json")
    (row,) = json.loads(out)["nodes"]
    assert (row["protection"], row["remark"]) == (protection, remark)


async def test_what_nodes_have_use_and_offer(cluster: Cluster, tmp_path: Path) -> None:
    cluster.node("node-2", {}, "False")
    cluster.pod("running", 700, "node-1", "Running")
    cluster.pod("done", 900, "node-1", "Succeeded")
    _, out, _ = await cluster.run(tmp_path, "cluster", "-o", "json")
    first, second = json.loads(out)["nodes"]
    assert (first["cpu_milli"], first["cpu_used_milli"], first["batch_cpu_milli"]) == (8000, 1500, 2000)
    assert (first["batch_cpu_held_milli"], first["batch_memory_held_bytes"], first["ready"]) == (700, 1 << 30, True)
    assert ("batch_cpu_milli" in second, second["ready"]) == (False, False)
    assert "no batch resources" in second["remark"]


# --- explain node ----------------------------------------------------------------------------------------------------


async def test_every_term_of_what_a_node_offers(cluster: Cluster, tmp_path: Path) -> None:
    _, out, _ = await cluster.run(tmp_path, "explain", "node", "node-1", "--overcommit")
    lines = out.splitlines()
    assert lines[0].startswith("Node node-1 shows 2000m kubernetes.io/batch-cpu and 4Gi kubernetes.io/batch-memory")
    assert lines[1] == "by the formula, now, with the cluster's strategy:"
    # 8000 - 40 % - 1500 that the system uses
    assert any("total 8000m - margin 3200m - used by the system 1500m" in line and "= 3300m" in line for line in lines)


def _batch(cpu: int, memory_bytes: int) -> dict[str, str]:
    return {"kubernetes.io/batch-cpu": str(cpu), "kubernetes.io/batch-memory": str(memory_bytes)}


FORMULA = 3300, 7945689498
"""What a node of this cluster offers: thousandths of a CPU, bytes."""


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({}, ""),
        (_batch(2000, FORMULA[1]), ""),
        (_batch(FORMULA[0], 4 << 30), ""),
        (_batch(3200, 4 << 30), ""),
        (_batch(*FORMULA), ""),
        (_batch(3200, FORMULA[1]), "kubernetes.io/batch-cpu differs by less than 10%, so"),
        (_batch(FORMULA[0], 7 << 30), "kubernetes.io/batch-memory differs by less than 10%, so"),
        (_batch(3200, 7 << 30), "kubernetes.io/batch-cpu and kubernetes.io/batch-memory differ by less than 10%, so"),
    ],
)
async def test_a_difference_that_may_stay(cluster: Cluster, tmp_path: Path, batch: dict[str, str], says: str) -> None:
    cluster.node("node-1", batch)
    _, out, _ = await cluster.run(tmp_path, "explain", "node", "node-1", "--overcommit")
    assert (says in out, "by less than" in out) == (True, bool(says))


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ("idle", "no batch resources, though its report (at most 15 min old) has all: does koord-manager run?"),
        ("excess", "batch over-allocated: 500m of the 2500m batch-cpu"),
        ("disabled", "colocation is not enabled for it, by the cluster's strategy in slo-controller-config"),
        ("disabled", "it offers nothing but what running pods request"),
        ("stale", "no batch and no mid resources"),
        ("held", "  at least 2500m, which running pods request"),
        ("uncovered", "batch over-allocated: 500m of the 2500m batch-cpu"),
        ("covered", "no batch and no mid resources beyond what running pods request: the NodeMetric is "),
        ("broken", "problem of slo-controller-config: "),
        ("mislabelled", "problem of the Node: node.koordinator.sh/cpu-reclaim-ratio: "),
    ],
)
async def test_why_a_node_offers_what_it_does(cluster: Cluster, tmp_path: Path, setup: str, says: str) -> None:
    match setup:
        case "idle":
            cluster.node("node-1", {})
        case "held":
            cluster.pod("large", 2500, "node-1", "Running")
        case "uncovered":
            cluster.pod("large", 2500, "node-1", "Running")
            cluster.config(enable=True, extensions={"koord": {"coverRunningPods": False}})
        case "covered":
            cluster.pod("large", 2000, "node-1", "Running")
            cluster.report("node-1", 3600)
        case "excess":
            cluster.pod("large", 2500, "node-1", "Running")
        case "disabled":
            cluster.config(enable=False)
        case "stale":
            cluster.report("node-1", 3600)
        case "broken":
            cluster.config(enable=True, cpuReclaimThresholdPercent="much")
        case "mislabelled":
            cluster.node("node-1", labels={"node.koordinator.sh/cpu-reclaim-ratio": "0,7"})
    _, out, _ = await cluster.run(tmp_path, "explain", "node", "node-1", "--overcommit")
    assert says in out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere", "--overcommit"), REFUSED, "there is no node 'nowhere'; there are node-1."),
        (("nod-1",), REFUSED, "there is no node 'nod-1' (did you mean node-1?); there are node-1."),
        (("a/b", "--overcommit"), USAGE, "Invalid value for NAME: "),
        (("node-1",), OK, ""),
        (("--overcommit",), USAGE, "--overcommit needs"),
    ],
)
async def test_which_node(cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    result, _, err = await cluster.run(tmp_path, "explain", "node", *arguments)
    assert (result, says in err) == (code, True)


# --- get -------------------------------------------------------------------------------------------------------------


async def test_objects_of_our_kinds(cluster: Cluster, tmp_path: Path) -> None:
    cluster.server.put(SLOS, "", "node-1", spec=SUPPRESSES)
    cluster.server.put(PROFILES, "", "batch", spec={"qosClass": "BE", "selector": {"matchLabels": {"a": "b"}}})
    async with cluster.flags(tmp_path) as flag:
        assert (await koordctl("get", "nodemetric", flag))[1].splitlines()[1].split()[2:] == [
            "1500m", "3Gi", "1500m", "3Gi", "0",
        ]  # fmt: skip
        assert (await koordctl("get", "NodeSLOs", flag))[1].splitlines()[1].split() == ["node-1", "yes", *"----"]
        assert "a=b" in (await koordctl("get", "clustercolocationprofiles", flag))[1]
        whole = json.loads((await koordctl("get", "nodeslos", "node-1", "-o", "json", flag))[1])
        assert (whole["spec"], whole["metadata"]["name"]) == (SUPPRESSES, "node-1")
        assert len(yaml.safe_load((await koordctl("get", "nodeslos", "-o", "yaml", flag))[1])["items"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("pods",), USAGE, "Koord has no kind 'pods'; there are nodemetrics, nodeslos"),
        (("nodeslos", "nowhere"), REFUSED, "404 NotFound"),
    ],
)
async def test_what_is_not_there(
    cluster: Cluster, tmp_path: Path, arguments: tuple[str, ...], code: int, says: str
) -> None:
    result, _, err = await cluster.run(tmp_path, "get", *arguments)
    assert (result, says in err) == (code, True)


async def test_no_objects(cluster: Cluster, tmp_path: Path) -> None:
    _, out, _ = await cluster.run(tmp_path, "get", "clustercolocationprofiles")
    assert out == "There are no clustercolocationprofiles.\n"


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "none"),
        (1, "n00"),
        (2, "n00, n01"),
        (20, ", ".join(f"n{number:02}" for number in range(20))),
        (23, ", ".join([*(f"n{number:02}" for number in range(20)), "and 3 more"])),
    ],
)
def test_no_more_names_than_people_read(count: int, text: str) -> None:
    assert names.some(f"n{number:02}" for number in reversed(range(count))) == text
