"""Two proxies times two hook servers, each pair between a client and a simulated runtime of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from integration.harness import cgroups, hookserver
from integration.harness.cri import Cri
from integration.harness.hookserver import Answering
from integration.harness.proxy import socket_of, start_proxy, start_qosd
from integration.harness.simulated import CONTROLLERS, SimulatedRuntime, make_sysfs
from integration.peers import koordlet, pods, recorder
from integration.peers.goproxy import GoProxy
from integration.peers.koordlet import Koordlet
from integration.peers.recorder import Recorder
from integration.peers.upstream import Protocol
from koord.pb.cri import api_pb2 as pb

KOORD, GO = "koord", "go-like"  # proxies
QOSD, KOORDLET = "qosd", "koordlet-like"  # hook servers
RULES = f"""\
node:
  cpuManagerPolicy: none
  limitsInCRI: true  # by default a proxy that kubelet would read them back from is not told of limits
  sharedPools:
    ls: [{{socket: 0, node: 0, cpuset: "{pods.LS_POOL}"}}]
"""


class Pair(NamedTuple):
    proxy: str
    server: str

    def __str__(self) -> str:
        return f"{self.proxy} + {self.server}"


PAIRS = tuple(Pair(proxy, server) for proxy in (KOORD, GO) for server in (QOSD, KOORDLET))
Effective = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Run:
    """What a pair did: the runtime's values by (class, step), the request that made each class's container as the
    runtime got it, and every hook call."""

    values: Mapping[tuple[str, str], Effective]
    created: Mapping[str, pb.CreateContainerRequest]
    calls: recorder.Calls


def run(pair: Pair) -> Run:
    """Let every pod's story happen through ``pair``."""
    with tempfile.TemporaryDirectory(prefix="koord-peers-") as name, _standing(pair, Path(name)) as stage:
        runtime, through, direct, recorded = stage
        values: dict[tuple[str, str], Effective] = {}
        created: dict[str, pb.CreateContainerRequest] = {}
        for qos, story in pods.stories().items():
            container_id = pods.create(through, story)
            created[qos] = runtime.created(container_id)
            values[qos, "created"] = _effective(runtime, direct, container_id)
            pods.pin_again(through, container_id)
            values[qos, "re-pinned"] = _effective(runtime, direct, container_id)
            pods.resize(through, container_id, story)
            values[qos, "resized"] = _effective(runtime, direct, container_id)
        return Run(values, created, recorded.heard)


def _effective(runtime: SimulatedRuntime, direct: Cri, container_id: str) -> Effective:
    """The container's cgroup files, and of its resources in the runtime what has no file here.

    Of several limits of one page size the last one counts; a swap limit of -1 is none, like 0.
    """
    resources = direct.container_status(container_id).status.resources.linux
    mounts = {controller: runtime.tree / controller for controller in CONTROLLERS}
    files = cgroups.read(runtime.cgroup(container_id), mounts)
    return {
        **dataclasses.asdict(files),
        "memory_swap_limit_bytes": max(0, resources.memory_swap_limit_in_bytes),
        "oom_score_adj": resources.oom_score_adj,
        "hugepage_limits": {limit.page_size: limit.limit for limit in resources.hugepage_limits},
        "unified": dict(resources.unified),
    }


@contextlib.contextmanager
def _standing(pair: Pair, directory: Path) -> Iterator[tuple[SimulatedRuntime, Cri, Cri, Recorder]]:
    """The runtime, a client through ``pair``, one on the runtime itself, and the recorder before the hook server."""
    backend, protocol = directory / "runtime.sock", Protocol()
    runtime = SimulatedRuntime(directory / "cgroup", pods.NODE_CPUS)
    with contextlib.ExitStack() as stack:
        stack.enter_context(runtime.serving(backend))
        if pair.server == QOSD:
            answer, stages = stack.enter_context(_qosd(backend, directory))
        else:
            answer, stages = Koordlet(pods.LS_POOL, protocol).answer, koordlet.STAGES
        recorded = Recorder(answer)
        stack.enter_context(hookserver.serving(directory / "recorder.sock", recorded.answer))
        hookserver.write_file(directory / "recorder.d", directory / "recorder.sock", stages)
        if pair.proxy == KOORD:
            stack.callback(start_proxy(backend, directory, directory / "recorder.d").stop)
        else:
            go = GoProxy(backend, directory / "recorder.d", protocol)
            stack.enter_context(go.serving(socket_of(directory)))
        through, direct = (stack.enter_context(Cri(socket)) for socket in (socket_of(directory), backend))
        yield runtime, through, direct, recorded


@contextlib.contextmanager
def _qosd(backend: Path, directory: Path) -> Iterator[tuple[Answering, tuple[str, ...]]]:
    """A koord-qosd process, and the stages that its own hook-server file lists."""
    hook_files = directory / "qosd.d"
    hook_files.mkdir()
    flags = ("--sys-root", str(make_sysfs(directory / "sys", pods.NODE_CPUS)))
    process = start_qosd(backend, directory, hook_files, RULES, flags)
    try:
        entry = json.loads(next(hook_files.glob("*.json")).read_text())
        with recorder.process_behind(Path(entry["remote-endpoint"])) as answer:
            yield answer, tuple(entry["runtime-hooks"])
    finally:
        process.stop()
