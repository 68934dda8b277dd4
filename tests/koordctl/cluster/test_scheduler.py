"""``koordctl explain pod`` and ``koordctl queue`` ask koord-scheduler: at an address, or in its leader's pod."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path

import msgspec
import pytest

from koord.model.schedulerpages import (
    POD_PAGE,
    QUEUE_PAGE,
    Example,
    Obstacle,
    Placed,
    PodPage,
    QueuePage,
    QueueRow,
    ScoredNode,
    Waiting,
)
from koord.service.statusserver import Page, PageRequest, StatusServer, TokenGuard
from koordctl.exits import OK, USAGE
from tests.koordctl.clusters import Cluster, time_before
from tests.koordctl.runs import koordctl
from tests.kube import portforward
from tests.kube.support import LEASES

DAY_S = 86_400
"""Ages are of the import: what a run takes makes no other text of so many days."""
PLACED = PodPage(
    "jobs", "p", "u", "koord-scheduler", 0, "placed",
    placed=Placed(
        "n1", time_before(3 * DAY_S), 5, 3, 2, 1.5,
        (
            ScoredNode("n1", 475, {"TaintToleration": 100, "NodeResourcesFit": 75, "ImageLocality": 0}),
            ScoredNode("n2", 450, {"TaintToleration": 100, "NodeResourcesFit": 50, "ImageLocality": 0}),
        ),
        {"TaintToleration": 3, "NodeResourcesFit": 1, "ImageLocality": 1},
    ),
)  # fmt: skip
WAITING = PodPage(
    "jobs", "p", "u", "koord-scheduler", 0, "waiting",
    waiting=Waiting(
        "unschedulable", time_before(3 * DAY_S), 3, "2026-01-01T00:05:00Z", "", 4, 0,
        (Obstacle("NodeResourcesFit", "Insufficient cpu", 4, (Example("n2", "3.5 of 8 cpu free, lacks 0.5"),)),),
        ("a node with 4 cpu free",), "no pods of a priority below 0", "0/4 nodes are available",
    ),
)  # fmt: skip
QUEUE = QueuePage(
    {"active": 0, "unschedulable": 6},
    (
        QueueRow("jobs", "high", "unschedulable", "", 1, 7, "koord-scheduler", time_before(4 * DAY_S), 2, "0/1 nodes"),
        QueueRow(
            "jobs", "train-4", "gated", "Job/train", 5, 0, "koord-scheduler", time_before(5 * DAY_S), 0, "its gates: g"
        ),
    ),
    4,
)
FOLLOWER = Page(503, b'{"message":"the instance is not leader"}\n', "application/json")


@contextlib.asynccontextmanager
async def scheduler(pages: Mapping[str, object], token: str = "") -> AsyncIterator[int]:
    """A scheduler's port, with these pages, guarded by the token if there is one."""

    def said(page: object, _: PageRequest) -> Page:
        return page if isinstance(page, Page) else Page(200, msgspec.json.encode(page), "application/json")

    guard = TokenGuard(token) if token else None
    server = StatusServer({}, guard, local={path: partial(said, page) for path, page in pages.items()})
    await server.start("127.0.0.1:0")
    try:
        yield server.port
    finally:
        server.close()


async def explained(cluster: Cluster, directory: Path, page: object, *arguments: str) -> str:
    async with scheduler({POD_PAGE: page}) as port:
        code, out, err = await cluster.run(
            directory, "explain", "pod", "jobs/p", f"--scheduler=127.0.0.1:{port}", *arguments
        )
    assert code == OK, err
    return out


async def test_why_a_pod_is_where_it_is(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("p", node="node-1", phase="Running")
    out = await explained(cluster, tmp_path, PLACED)
    assert out.splitlines()[1:] == [
        "koord-scheduler chose n1 3 d ago: at try 2, after 1.5 s; 3 of 5 nodes would have done",
        "  NODE  TOTAL  TaintToleration*3  NodeResourcesFit*1",
        "  n1    475    100                75",
        "  n2    450    100                50",
    ]


async def test_why_a_pod_waits(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("p", cpu=0)
    out = await explained(cluster, tmp_path, WAITING)
    assert out.splitlines()[-5:] == [
        "koord-scheduler has it in its queue (unschedulable), tried 3 times, again at 2026-01-01T00:05:00Z at the "
        "latest; it has waited 3 d",
        "  4 nodes of 4: Insufficient cpu (NodeResourcesFit)",
        "    n2: 3.5 of 8 cpu free, lacks 0.5",
        "  what helps: a node with 4 cpu free",
        "  no preemption: no pods of a priority below 0",
    ]
    document = json.loads(await explained(cluster, tmp_path, WAITING, "-o", "json"))
    assert document["scheduling"]["waiting"]["obstacles"][0]["nodeCount"] == 4


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (
            PodPage("jobs", "p", state="deciding", remark="it is being decided about"),
            "koord-scheduler says: it is being",
        ),
        (PodPage("jobs", "p", state="placed", placed=Placed("n1")), "koord-scheduler does not know why it is on n1"),
        (
            FOLLOWER,
            "koord-scheduler: it answered 503: the instance is not leader; the above is what the API server has",
        ),
        (Page(200, b"<html>"), "koord-scheduler: it cannot be asked: "),
        (Page(401, b"a bearer token is needed\n"), "koord-scheduler: it answered 401: a bearer token is needed"),
    ],
)
async def test_what_else_a_scheduler_may_say(cluster: Cluster, tmp_path: Path, page: object, says: str) -> None:
    cluster.pod("p", cpu=0)
    out = await explained(cluster, tmp_path, page)
    assert says in out


async def test_another_schedulers_pod_is_none_of_its_business(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("p", cpu=0)
    out = await explained(cluster, tmp_path, PodPage("jobs", "p", state="other", remark="it waits for x"))
    assert "koord-scheduler" not in out


async def test_without_a_scheduler_the_api_server_is_all_there_is(cluster: Cluster, tmp_path: Path) -> None:
    cluster.pod("p", cpu=0)
    cluster.pod("ours", cpu=0, schedulerName="koord-scheduler")
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/p")
    assert "Lease" not in out
    _, out, _ = await cluster.run(tmp_path, "explain", "pod", "jobs/ours")
    assert "koord-scheduler: there is no Lease koordinator-system/koord-scheduler; the above is" in out


async def test_the_leader_is_asked_in_its_pod(cluster: Cluster, tmp_path: Path) -> None:
    lease = {"spec": {"holderIdentity": "scheduler-a_123"}, "metadata": {"annotations": {"koord.sh/status-port": "99"}}}
    cluster.server.put(LEASES, "koordinator-system", "koord-scheduler", **lease)
    async with scheduler({QUEUE_PAGE: QUEUE}) as port:
        cluster.server.forwards = partial(portforward.forward, target_port=port)
        code, out, err = await cluster.run(tmp_path, "queue")
    assert (code, err) == (OK, "")
    assert out.splitlines() == [
        "NAMESPACE  POD      OWNER      PODS  PRIORITY  WAITED  QUEUE          TRIES  WAITS FOR",
        "jobs       high                1     7         4 d     unschedulable  2      0/1 nodes",
        "jobs       train-4  Job/train  5     0         5 d     gated          0      its gates: g",
        "active: 0, unschedulable: 6",
        "4 more pods: --limit",
    ]
    forwarded = [each for each in cluster.server.requests if each[1].endswith("/portforward")]
    assert [(each[1], each[2]) for each in forwarded] == [
        ("/api/v1/namespaces/koordinator-system/pods/scheduler-a/portforward", {"ports": "99"})
    ]


async def test_a_queue_for_programs(cluster: Cluster, tmp_path: Path) -> None:
    async with scheduler({QUEUE_PAGE: QUEUE}) as port:
        _, out, _ = await cluster.run(tmp_path, "queue", f"--scheduler=127.0.0.1:{port}", "-o", "json")
    document = json.loads(out)
    assert (document["counts"]["unschedulable"], document["left_out_count"]) == (6, 4)
    assert document["rows"][1]["owner"] == "Job/train"
    assert 5 * DAY_S <= document["rows"][1]["waited_s"] < 6 * DAY_S


@pytest.mark.parametrize(("token", "says"), [("secret\n", ""), ("wrong", "it answered 401: a bearer token is needed")])
async def test_a_token(cluster: Cluster, tmp_path: Path, token: str, says: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    async with scheduler({QUEUE_PAGE: QUEUE}, "secret") as port:
        flags = (f"--scheduler=127.0.0.1:{port}", f"--scheduler-token-file={file}")
        _, out, err = await cluster.run(tmp_path, "queue", *flags)
    assert ("train-4" in out) is not bool(says)
    assert says in err


async def test_the_queue_as_the_api_server_knows_it(cluster: Cluster, tmp_path: Path) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    cluster.pod("p", cpu=0, schedulerName="koord-scheduler", status={"conditions": [condition]})
    cluster.pod("new", cpu=0, schedulerName="koord-scheduler")
    cluster.pod("placed", cpu=0, node="node-1", schedulerName="koord-scheduler")
    cluster.pod("others", cpu=0)
    code, out, err = await cluster.run(tmp_path, "queue", "--fields", "pod,waiting_for")
    assert code == OK
    assert sorted(out.splitlines()[1:]) == ["new  the scheduler to look at it", "p    0/1 nodes"]
    assert err == (
        "warning: koord-scheduler: there is no Lease koordinator-system/koord-scheduler; this is what the API server "
        "has\n"
    )


@pytest.mark.parametrize("address", ["x", "127.0.0.1", ":", "h:port", "h:70000", "h:-1"])
async def test_an_address_that_is_none(address: str) -> None:
    code, _, err = await koordctl("queue", "--scheduler", address)
    assert (code, f"'{address}' is not HOST:PORT" in err) == (USAGE, True)
