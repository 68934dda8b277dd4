"""Extenders that say yes, no and nonsense, late and never, and what becomes of their pods."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from koord_scheduler import extenders as module
from koord_scheduler import profiles
from koord_scheduler.profiles import Profile
from tests.koord_scheduler.extenderserver import GPU, WITH_GPU, Answer, ExtenderServer, hang, names, scores
from tests.koord_scheduler.rig import running
from tests.kube.authority import Authority
from tests.kube.server import Fault
from tests.kube.support import NODES
from tests.support.waiting import until

# what it is asked, and what may be answered


async def test_it_is_asked_about_a_pod_as_the_api_server_has_it(extender: ExtenderServer) -> None:
    extender.answers["filter"] = names("n2")
    metadata = {"annotations": {"a": "b"}, "managedFields": [{"manager": "kubectl"}]}
    container = {"name": "main", "env": [{"name": "LICENSE", "value": "x"}]}
    async with running(lambda rig: rig.nodes("n1", "n2", "n3"), extenders=[extender.settings()]) as rig:
        rig.node("n3", unschedulable=True).pod(metadata=metadata, containers=[container])
        await rig.lead()
        assert await rig.placed("p") == ["n2"]
    (question,) = extender.asked["filter"]
    assert question["Pod"]["spec"]["containers"] == [container]
    assert question["Pod"]["metadata"]["annotations"] == {"a": "b"}
    assert "managedFields" not in question["Pod"]["metadata"]
    assert (sorted(question["NodeNames"]), question["Nodes"]) == (["n1", "n2"], None)


async def test_one_that_knows_no_nodes_is_sent_them_whole(extender: ExtenderServer) -> None:
    def last(question: dict[str, Any]) -> Any:
        return {"nodes": {"items": [each for each in question["Nodes"]["items"] if each["metadata"]["name"] == "n2"]}}

    extender.answers["filter"] = last
    said = extender.settings("filter", "prioritize", is_node_cache_capable=False, weight=1)
    async with running(lambda rig: rig.nodes("n1", "n2"), extenders=[said]) as rig:
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}, "addresses": [{"address": "10.0.0.1"}]}
        rig.server.put(NODES, "", "n1", metadata={"managedFields": [{}]}, status=status)
        await until(lambda: "n1" in rig.view.state.table and rig.view.node_documents)
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n2"]
    (question,) = extender.asked["filter"]
    assert question["NodeNames"] is None
    sent = {each["metadata"]["name"]: each for each in question["Nodes"]["items"]}
    assert sorted(sent) == ["n1", "n2"]
    assert sent["n1"]["status"] == status
    assert "managedFields" not in sent["n1"]["metadata"]
    assert "prioritize" not in extender.asked, "one node is left"


@pytest.mark.parametrize(
    "answer",
    [
        {"NodeNames": ["n1"]},
        {"nodenames": ["n1", "n1"], "failedNodes": None, "error": None, "more": {"a": 1}},
        {"NodeNames": None, "Nodes": {"metadata": {}, "items": [{"metadata": {"name": "n1"}}]}},
        {"NodeNames": ["n1"], "FailedNodes": {"n1": "it passes all the same", "n9": "nobody asked"}, "Error": ""},
    ],
)
async def test_forms_of_one_answer(extender: ExtenderServer, answer: Any) -> None:
    extender.answers["filter"] = lambda _: answer
    async with running(lambda rig: rig.nodes("n1", "n2"), extenders=[extender.settings()]) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n1"]


@pytest.mark.parametrize(
    ("spec", "is_asked"),
    [
        ({}, False),
        (WITH_GPU, True),
        ({"initContainers": [{"name": "i", "resources": {"requests": {GPU: "1"}}}]}, True),
        ({"overhead": {GPU: "1"}}, False),
    ],
)
async def test_it_is_asked_about_pods_with_its_resources(
    extender: ExtenderServer, spec: dict[str, Any], is_asked: bool
) -> None:
    """Which the scheduler itself is not to look at: no node has any."""
    said = extender.settings(managed=frozenset((GPU, "example.com/other")))
    found = (profiles.without(frozenset((GPU,)), Profile()),)
    async with running(lambda rig: rig.nodes("n1"), extenders=[said], profiles=found) as rig:
        rig.pod(**({"containers": [{"name": "main"}]} | spec))
        await rig.lead()
        assert await rig.placed("p") == ["n1"]
        assert extender.names() == ["p"] * is_asked
        assert rig.server.count("get") == is_asked, "a pod without one costs nothing more"


# several


async def test_each_gets_what_the_one_before_has_left(extender: ExtenderServer, second: ExtenderServer) -> None:
    extender.answers["filter"] = names("n1", "n2", FailedNodes={"n3": "no license"})
    second.answers["filter"] = names("n1", FailedNodes={"n2": "wrong rack", "n3": "never seen"})
    said = [extender.settings(), second.settings("prioritize", weight=1), second.settings()]
    async with running(lambda rig: rig.nodes("n1", "n2", "n3"), extenders=said) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n1"]
        assert (extender.nodes(), second.nodes()) == ([["n1", "n2", "n3"]], [["n1", "n2"]])
        rig.node("n1", unschedulable=True)
        await until(lambda: rig.view.state.nodes.nodes[rig.view.state.table.row("n1") or 0].spec.unschedulable)
        rig.pod("q")
        message = "0/3 nodes are available: 1 no license, 1 node(s) were unschedulable, 1 wrong rack."
        await until(lambda: rig.condition("q")[1:] == ("Unschedulable", f"{message} preemption: {NO_VICTIMS_3}"))
        extender.answers["filter"] = names()
        rig.pod("r")
        await until(lambda: rig.condition("r")[1] == "Unschedulable")
        assert second.names() == ["p", "q"], "nothing is left to be asked about"


NO_VICTIMS_3 = (
    "0/3 nodes are available: 1 Preemption is not helpful for scheduling, "
    "2 No preemption victims found for incoming pod."
)


@pytest.mark.parametrize(
    ("given", "weights", "expected"),
    [
        ([{"n1": 1, "n2": 2}, {}], (1, 1), "n2"),
        ([{"n1": 1, "n2": 2}, {"n1": 1}], (1, 2), "n1"),
        ([{"n1": 10, "n2": 7}, {"n2": 2}], (1, 1), "n1"),
        ([{"n2": 0, "n1": -3}, {}], (1, 1), "n2"),
        ([{"n1": 40, "n2": 50}, {"n9": 100}], (1, 1), "n2"),
    ],
    ids=["one", "a weight", "a sum", "below 0", "above 10"],
)
async def test_scores_are_added(
    extender: ExtenderServer,
    second: ExtenderServer,
    given: list[dict[str, int]],
    weights: tuple[int, int],
    expected: str,
) -> None:
    both = []
    for server, by_node, weight in zip((extender, second), given, weights, strict=True):
        server.answers["prioritize"] = scores(by_node)
        both.append(server.settings("prioritize", weight=weight))
    async with running(lambda rig: rig.nodes("n1", "n2"), extenders=both) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == [expected]
        assert extender.nodes("prioritize") == [["n1", "n2"]]


async def test_ten_weighs_as_much_as_a_hundred_of_a_plugin(extender: ExtenderServer) -> None:
    """So it outweighs what makes an empty node better than one that is three quarters full."""
    async with running(extenders=[extender.settings("prioritize", weight=1)]) as rig:
        rig.nodes("n1", "n2")
        rig.pod("there", "3", nodeName="n1")
        await until(lambda: rig.requested("n1") == 3000 and "n2" in rig.view.state.table)
        await rig.lead()
        for name, score, expected in (("a", 0, "n2"), ("b", 10, "n1")):
            extender.answers["prioritize"] = scores({"n1": score})
            rig.pod(name, "100m")
            assert await rig.placed(name) == [expected]


@pytest.mark.parametrize(
    "answer",
    [
        500,
        None,
        b"[",
        {"Host": "n2", "Score": 10},
        [3],
        [{"Host": "n2", "Score": 1.5}],
        [{"Host": "n2", "Score": "10"}],
        [{"Host": "n2", "Score": 2**60}],
        [{"Host": 2, "Score": 10}],
        pytest.param(hang, id="silence"),
    ],
    ids=str,
)
async def test_one_that_cannot_score_has_no_say(extender: ExtenderServer, second: ExtenderServer, answer: Any) -> None:
    extender.answers["prioritize"] = answer if callable(answer) else lambda _: answer
    second.answers["prioritize"] = lambda _: [{"Host": "n1", "Score": 10}]
    both = [
        extender.settings("prioritize", weight=100, timeout_s=0.2 if answer is hang else 60),
        second.settings("prioritize", weight=1),
    ]
    async with running(lambda rig: rig.nodes("n1", "n2"), extenders=both) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n1"]


# failures


async def stalled(_: dict[str, Any]) -> web.StreamResponse:
    """A body that does not end."""
    return web.Response(body=_endless(b"", asyncio.Event()))


async def _endless(chunk: bytes, until: asyncio.Event | None = None) -> AsyncIterator[bytes]:
    while True:
        yield b'{"NodeNames"'
        if until is not None:
            await until.wait()
        yield chunk


FAILURES = [
    pytest.param(lambda _: 500, "answers filter with status 500", id="an error"),
    pytest.param(lambda _: 307, "answers filter with status 307", id="elsewhere"),
    pytest.param(lambda _: None, "cannot be asked to filter: ", id="a connection that breaks"),
    pytest.param(lambda _: b"<html>", "answers filter with what is not JSON: ", id="a page"),
    pytest.param(lambda _: b"", "answers filter with what is not JSON: ", id="nothing"),
    pytest.param(lambda _: b"[" * 100_000, "answers filter with what is not JSON: ", id="brackets"),
    pytest.param(lambda _: b"\xff\xfe", "answers filter with what is not JSON: ", id="bytes"),
    pytest.param(lambda _: [1], "answers with what is none: Expected `object`, got `array`", id="a list"),
    pytest.param(lambda _: {"NodeNames": "n1"}, "answers with what is none: ", id="a name"),
    pytest.param(lambda _: {"NodeNames": [1]}, "answers with what is none: ", id="a number"),
    pytest.param(lambda _: {"Nodes": {"items": [{"metadata": 3}]}}, "answers with what is none: ", id="no nodes"),
    pytest.param(lambda _: {"Nodes": {"items": [{}]}}, "answers with what is none: ", id="nameless"),
    pytest.param(lambda _: {"FailedNodes": ["n1"]}, "answers with what is none: ", id="a list of failures"),
    pytest.param(
        lambda _: {"NodeNames": ["n1", "n9", "n8"]},
        "lets nodes pass that it was not asked about, such as 'n8'",
        id="unknown nodes",
    ),
    pytest.param(lambda _: {"NodeNames": ["n1"], "error": "no database"}, ": no database", id="it says so"),
    pytest.param(hang, "does not answer filter within 0.2 s", id="silence"),
    pytest.param(stalled, "does not answer filter within 0.2 s", id="half an answer"),
    pytest.param(lambda _: web.Response(body=_endless(b"x" * 100_000)), "answers with more than 2", id="no end"),
]


@pytest.mark.parametrize(("answer", "message"), FAILURES)
async def test_an_extender_that_fails_costs_its_own_pods_some_time(
    extender: ExtenderServer, monkeypatch: pytest.MonkeyPatch, answer: Answer, message: str
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 200_000)
    extender.answers["filter"] = answer
    said = extender.settings(managed=frozenset((GPU,)), timeout_s=0.2 if "within" in message else 60)
    found = (profiles.without(frozenset((GPU,)), Profile()),)
    async with running(lambda rig: rig.nodes("n1"), extenders=[said], profiles=found) as rig:
        rig.pod(**WITH_GPU).pod("other")
        await rig.lead()
        await rig.placed("other")
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert rig.condition()[2].startswith(f"extender {extender.url}")
        assert message in rig.condition()[2]
        assert len(rig.condition()[2]) < 500
        await until(lambda: rig.events("FailedScheduling") == [rig.condition()[2]])
        assert (rig.view.queue.counts()["backoff"], rig.attempts("error")) == (1, 1)
        extender.answers.clear()
        rig.later()
        assert await rig.placed("p") == ["n1"]


@pytest.mark.parametrize(("answer", "message"), FAILURES)
async def test_one_that_is_ignorable_is_passed_over(
    extender: ExtenderServer, monkeypatch: pytest.MonkeyPatch, answer: Answer, message: str
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 200_000)
    extender.answers["filter"] = answer
    said = extender.settings(is_ignorable=True, timeout_s=0.2 if "within" in message else 60)
    async with running(lambda rig: rig.nodes("n1"), extenders=[said]) as rig:
        rig.pod()
        await rig.lead()
        assert await rig.placed("p") == ["n1"]
        assert rig.condition() == ("", "", "")


async def test_one_that_is_not_there(extender: ExtenderServer) -> None:
    async with ExtenderServer().serving() as gone:
        said = gone.settings()
    async with running(lambda rig: rig.nodes("n1"), extenders=[said]) as rig:
        rig.pod()
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        assert f"extender {gone.url} cannot be asked to filter: Cannot connect" in rig.condition()[2]


async def test_texts_of_extenders_do_not_swell_conditions(extender: ExtenderServer) -> None:
    """300 nodes, each with a long reason of its own, and one of them an error as long as a book."""
    extender.answers["filter"] = lambda question: {"FailedNodes": {each: each * 999 for each in question["NodeNames"]}}
    many = [f"n{index}" for index in range(300)]
    async with running(lambda rig: rig.nodes(*many), extenders=[extender.settings()]) as rig:
        rig.pod()
        await rig.lead()
        await until(lambda: rig.condition()[1] == "Unschedulable")
        assert "250 node(s) were rejected by extenders for other reasons" in rig.condition()[2]
        assert len(rig.condition()[2]) < 60 * 320
        extender.answers["filter"] = lambda _: {"Error": "x" * 1_000_000}
        rig.pod("q")
        await until(lambda: rig.condition("q")[1] == "SchedulerError")
        assert len(rig.condition("q")[2]) < 500


async def test_a_pod_that_cannot_be_read_is_tried_again(extender: ExtenderServer) -> None:
    async with running(lambda rig: rig.nodes("n1"), extenders=[extender.settings()], tries=1) as rig:
        rig.server.faults.append(Fault("get", status=500, reason="InternalError"))
        rig.pod()
        await rig.lead()
        await until(lambda: rig.condition()[1] == "SchedulerError")
        rig.later()
        assert await rig.placed("p") == ["n1"]


# TLS


@pytest.mark.parametrize(
    ("server_name", "is_known", "message"),
    [("server", True, ""), ("elsewhere", True, "cannot be asked to filter: "), ("server", False, "cannot be asked")],
)
async def test_by_https(tmp_path: Path, server_name: str, is_known: bool, message: str) -> None:
    """The server's certificate is one of the authority and for that name; it wants one of ours."""
    authority = Authority()
    (tmp_path / "pair").write_bytes(authority.issue("koord-scheduler"))
    tls = ssl.create_default_context(cadata=(authority if is_known else Authority()).pem.decode())
    tls.load_cert_chain(tmp_path / "pair")
    async with ExtenderServer().serving(authority.server_context(tmp_path)) as server:
        said = server.settings(tls=tls, server_name=server_name)
        async with running(lambda rig: rig.nodes("n1"), extenders=[said]) as rig:
            rig.pod()
            await rig.lead()
            if not message:
                assert await rig.placed("p") == ["n1"]
                return
            await until(lambda: message in rig.condition()[2])
