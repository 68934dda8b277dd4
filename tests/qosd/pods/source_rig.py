"""A `PodSource` with a runtime, a kubelet and a cgroup tree that are all real to it: sockets, loopback, inotify."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koord.model.qos import DerivationRules
from qosd.model.snapshot import ContainerView, PodView
from qosd.pods.cri import CRIClient
from qosd.pods.http import KubeletAccess
from qosd.pods.kubelet import KubeletClient
from qosd.pods.source import PodSource
from tests.fakes.runtime import TIERS, FakeRuntime


class FakeKubelet:
    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self.failing = False
        self.slow_s = 0.0

    def pod(self, name: str, **more: Any) -> None:
        meta = {"uid": f"uid-{name}", "namespace": "default", "name": name, "annotations": more.pop("annotations", {})}
        meta["labels"] = more.pop("labels", {})
        spec = {"priority": more.pop("priority", None), "containers": more.pop("containers", [])}
        self.pods[name] = {"metadata": meta, "spec": spec, "status": {"phase": "Running", **more}}

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.asked += 1
        await asyncio.sleep(self.slow_s)
        if not self.failing:
            body = json.dumps({"items": list(self.pods.values())}).encode()
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + body)
        writer.close()


@dataclass
class Node:
    runtime: FakeRuntime
    kubelet: FakeKubelet
    source: PodSource
    derivation: list[DerivationRules]
    changes: list[tuple[PodView, ...]] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    owned: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        return [pod.name for pod in self.source.current]

    def pod(self, name: str) -> PodView:
        return next(pod for pod in self.source.current if pod.name == name)

    def container(self, pod: str, name: str) -> ContainerView:
        return next(view for view in self.pod(pod).containers if view.name == name)


@asynccontextmanager
async def node(
    tmp_path: Path, *, cri: bool = True, kubelet: bool = False, watched: bool = True, start: bool = True
) -> AsyncIterator[Node]:
    tree = tmp_path / "cgroup"
    for tier in TIERS:
        (tree / tier.lstrip("/")).mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        fake, server = FakeRuntime(tree), FakeKubelet()
        await stack.enter_async_context(fake.serving(tmp_path / "cri"))
        listener = await asyncio.start_server(server.converse, "127.0.0.1", 0)
        stack.callback(listener.close)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        changes: list[tuple[PodView, ...]] = []
        written: list[str] = []
        owned: set[str] = set()
        derivation = [DerivationRules()]
        source = PodSource(
            CRIClient(f"unix://{tmp_path}/cri", 1.0, asyncio.get_running_loop()) if cri else None,
            KubeletClient(KubeletAccess(url), 1.0) if kubelet else None,
            lambda: derivation[0],
            lambda: changes.append(source.current),
            modified=written.append,
            owns=owned.__contains__,
        )
        stack.push_async_callback(source.close)
        if watched:
            source.follow(tree, TIERS)
        if start:
            source.start()
        yield Node(fake, server, source, derivation, changes, written, owned)
