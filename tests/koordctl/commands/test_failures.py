"""koordctl tells a daemon that is missing, silent or old from one that refuses what it is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from koord.http2.server import UnaryServer
from qosd.inspect.inspector import Inspector
from qosd.inspect.service import SERVICE, methods
from tests.koordctl.commands.fullnode import ASKING
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import Scene, batch_scene, inspecting, living


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
async def test_no_daemon(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, out, err = await koordctl(*arguments, "--socket", f"{tmp_path}/none.sock")
    assert (code, out) == (2, "")
    assert err.startswith(f"koordctl: no socket at {tmp_path}/none.sock: is koord-qosd running")


async def test_top_needs_a_daemon_too(tmp_path: Path) -> None:
    code, _, err = await koordctl("top", "--socket", f"{tmp_path}/none.sock")
    assert (code, "no socket at" in err) == (2, True)


async def test_a_socket_without_an_answer(tmp_path: Path) -> None:
    (tmp_path / "i.sock").write_text("")
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock")
    assert (code, "nothing listens" in err) == (2, True)


async def test_a_daemon_that_does_not_answer(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "i.sock")
    code, _, err = await koordctl("pods", "--socket", f"{tmp_path}/i.sock", "--timeout", "0.3")
    server.close()
    assert (code, "did not answer within 0.3 s" in err) == (2, True)


async def test_an_old_daemon_is_told_from_a_missing_one(tmp_path: Path) -> None:
    path = f"/{SERVICE.full_name}/ListPods"
    async with living(batch_scene(tmp_path)) as node:
        old = UnaryServer({path: methods(Inspector(node))[path]})
        listener = await asyncio.get_running_loop().create_unix_server(old.protocol, f"{tmp_path}/i.sock")
        code, _, err = await koordctl("plan", "--socket", f"{tmp_path}/i.sock")
        listener.close()
    assert (code, "does not know Plan: it is older than this koordctl" in err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain", "pod", "gone"], "answered NOT_FOUND: no pod gone on this node"),
        (["explain", "file", "/etc/passwd"], "answered NOT_FOUND: /etc/passwd"),
        (
            ["metrics", "node_cpuusage"],
            "there is no metric that begins with 'node_cpuusage' (did you mean node_cpu_usage_",
        ),
        (["metrics", "wibble"], "NOT_FOUND: there is no metric that begins with 'wibble'\n"),
        (["disable", "nothing"], "there is no strategy 'nothing'; there are hooks, "),
    ],
)
async def test_what_the_daemon_does_not_know(tmp_path: Path, arguments: list[str], said: str) -> None:
    async with inspecting(tmp_path / "i.sock", batch_scene(tmp_path)) as path:
        code, out, err = await koordctl(*arguments, "--socket", path)
    assert (code, out, said in err) == (3, "", True), err


async def test_a_runtime_that_is_gone_from_the_start_is_the_daemons_answer(tmp_path: Path) -> None:
    async with inspecting(tmp_path / "i.sock", Scene(tmp_path)) as path:
        code, _, err = await koordctl("pods", "--socket", path)
    assert (code, "answered FAILED_PRECONDITION: there is no snapshot yet" in err, "shows where pods are" in err) == (
        3,
        True,
        True,
    )
