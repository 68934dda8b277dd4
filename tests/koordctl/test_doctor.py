"""``koordctl doctor`` as a process: on a recorded tree, with a runtime and a daemon that answer, and without."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Mapping
from pathlib import Path

import pytest

from koord.http2.server import ServerReply, UnaryServer
from koord.pb.cri import api_pb2 as cri
from koordctl.node.collect import ask_kubelet, ask_runtime
from qosd.sense.sampler import CollectorHealth
from tests.koordctl.runs import koordctl
from tests.qosd.inspect.scenes import batch_scene, inspecting


def recorded(root: Path) -> None:
    """A v2 node with nothing but its kernel and an empty cgroup tree."""
    for name, text in {
        "proc/sys/kernel/osrelease": "6.8.0\n",
        "proc/pressure/cpu": "some avg10=0.00\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu cpuset memory io\n",
        "sys/fs/cgroup/kubepods/cgroup.subtree_control": "cpu cpuset memory io\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def test_without_anybody_to_ask(tmp_path: Path) -> None:
    recorded(tmp_path)
    code, out, err = await koordctl("doctor", "--root", f"{tmp_path}", "--offline")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, err) == (4, "")  # there is no runtime
    assert lines[0] == "recorded: these are the files of another node, or of another time"
    assert lines[2:5] == ["STATUS CHECK FOUND", "ok kernel Linux 6.8.0", "ok cgroup-version cgroup v2"]
    assert (
        "FAIL runtime no socket of a container runtime at /run/containerd/containerd.sock. "
        "To do: start it, or name its socket: koord-qosd --runtime-endpoint"
    ) in lines
    assert "WARN daemon not asked (--offline). To do: systemctl start koord-qosd" in lines
    assert next(line for line in lines if line.endswith(" 1 fail"))
    assert [line.partition(":")[0] for line in lines[lines.index("installation: refused") + 1 :]] == [
        "systemd",
        "kubelet-found",
        "runtime",
    ]


async def test_fields_of_findings_and_of_what_keeps_koord_from_being_installed(tmp_path: Path) -> None:
    recorded(tmp_path)
    arguments = ("doctor", "--root", f"{tmp_path}", "--offline", "--fields", "check", "--sort-by", "-check")
    _, table, _ = await koordctl(*arguments)
    assert table.splitlines()[2:4] == ["CHECK", "warnings"]
    report = json.loads((await koordctl(*arguments, "-o", "json"))[1])
    assert report["source"] == "recorded"
    assert report["blockers"] == [{"check": "systemd"}, {"check": "runtime"}, {"check": "kubelet-found"}]
    assert report["findings"] == [{"check": line} for line in table.split("\n\n")[1].splitlines()[1:]]


async def test_a_bad_recording_is_said_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "koord-recording.json").write_text('{"kubelet": "v1.30.2"}')
    code, out, err = await koordctl("doctor", "--root", f"{tmp_path}")
    assert (code, out) == (1, "")
    assert f"{tmp_path}/koord-recording.json: KeyError('runtime')" in err


async def test_an_old_runtime_is_named_by_its_old_api(tmp_path: Path) -> None:
    def version(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
        return ServerReply(cri.VersionResponse(runtime_name="containerd", runtime_version="1.5.9").SerializeToString())

    runtime = UnaryServer({"/runtime.v1alpha2.RuntimeService/Version": version})
    listener = await asyncio.get_running_loop().create_unix_server(runtime.protocol, f"{tmp_path}/c.sock")
    told = await asyncio.to_thread(ask_runtime, f"{tmp_path}/c.sock")
    listener.close()
    assert told == ("containerd", "1.5.9")


@pytest.mark.parametrize(
    ("script", "version"),
    [
        ("echo Kubernetes v1.30.2", "v1.30.2"),
        ("echo 'sleep (GNU coreutils) 9.1'", ""),
        ("exit 1", ""),
    ],
)
def test_kubelets_version(tmp_path: Path, script: str, version: str) -> None:
    program = tmp_path / "kubelet"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert ask_kubelet(program) == version


def test_a_kubelet_that_cannot_be_asked(tmp_path: Path) -> None:
    assert ask_kubelet(tmp_path / "none") == ""


async def test_an_absent_daemon_is_a_finding(tmp_path: Path) -> None:
    recorded(tmp_path)
    _, out, _ = await koordctl("doctor", "--root", f"{tmp_path}", "--socket", f"{tmp_path}/none.sock", "-o", "json")
    found = {each["check"]: each for each in json.loads(out)["findings"]}
    assert found["daemon"]["status"] == "warn"
    assert found["daemon"]["sentence"].startswith(f"no socket at {tmp_path}/none.sock")


async def test_a_runtime_and_a_daemon_that_answer(tmp_path: Path) -> None:
    def version(message: bytes, fields: Mapping[bytes, bytes]) -> ServerReply:
        answer = cri.VersionResponse(runtime_name="containerd", runtime_version="v2.0.1")
        return ServerReply(answer.SerializeToString())

    recorded(tmp_path)
    (tmp_path / "run").mkdir()
    runtime = UnaryServer({"/runtime.v1.RuntimeService/Version": version})
    listener = await asyncio.get_running_loop().create_unix_server(runtime.protocol, f"{tmp_path}/run/c.sock")
    node = batch_scene(tmp_path / "tree")
    node.collectors = {"disks": CollectorHealth(failures=3, last_error="EIO")}
    async with inspecting(tmp_path / "i.sock", node) as path:
        code, out, err = await koordctl(
            "doctor", "--root", f"{tmp_path}", "--runtime", "/run/c.sock", "--socket", path, "-o", "json"
        )
    listener.close()
    found = {each["check"]: (each["status"], each["sentence"]) for each in json.loads(out)["findings"]}
    assert (code, err) == (0, "")
    assert found["runtime"] == ("ok", "containerd v2.0.1")
    assert found["daemon"] == ("ok", "koord-qosd 0.1.0 answers")
    assert found["front-end"] == ("ok", "proxy acts")
    assert found["loops"] == ("warn", "failing: disks (EIO)")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert f"koord-qosd may open {limit} files" in found["open-files"][1]
