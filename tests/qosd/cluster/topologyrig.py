"""A node of which all is known, as far as its topology's reporter looks at it, with a machine of plain files."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from koord.host.cgroup import Tree
from koord.model.kubeletconfig import KubeletConfig
from qosd.cluster.topologyreporter import TopologyReporter
from qosd.node import Node
from tests.qosd.cluster.topologies import NODE, ONE_SOCKET, inputs


class Rig:
    """``root``: where the machine is. 16 GiB, four CPUs, no pods."""

    def __init__(self, root: Path, client: Any) -> None:
        made = inputs()
        self.root = root
        self.memory_kb(16 << 20)
        tree = Tree(1, root, {}, proc=root / "proc", sys=root / "sys", resctrl=root / "resctrl")
        self.pods = SimpleNamespace(age_s=1.0, current=())
        self.policy = SimpleNamespace(current=made.policy)
        self.locator = SimpleNamespace(topology=ONE_SOCKET, tree=tree)
        self.kubelet_config = SimpleNamespace(current=KubeletConfig())
        self.cluster_policy = SimpleNamespace(node=NODE)
        self.reports: Counter[tuple[str, str]] = Counter()
        self.node = SimpleNamespace(
            pods=self.pods, policy=self.policy, locator=self.locator, kubelet_config=self.kubelet_config,
            cluster_policy=self.cluster_policy, cpu_manager=SimpleNamespace(current=made.cpu_manager),
            metrics=SimpleNamespace(cluster_reports=self.reports), after_tick=[],
        )  # fmt: skip
        self.reporter = TopologyReporter(
            client, NODE.name, cast(Node, self.node), random=lambda: 1.0, thread=_InPlace()
        )

    def memory_kb(self, kilobytes: int) -> None:
        file = self.root / "proc/meminfo"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"MemTotal: {kilobytes} kB\n")

    def feed(self, *pods: Any, **section: Any) -> None:
        """Other pods or rules, which a tick takes over."""
        self.pods.current, self.policy.current = pods, inputs(*pods, **section).policy
        self.tick()

    def tick(self) -> None:
        for look in self.node.after_tick:
            look()

    def count(self, result: str) -> int:
        return self.reports["NodeResourceTopology", result]


class _InPlace(Executor):
    """For whom time stands still."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as an executor does
            done.set_exception(error)
        return done


@asynccontextmanager
async def reporting(rig: Rig) -> AsyncGenerator[None, None]:
    task = asyncio.create_task(rig.reporter.run())
    try:
        await asyncio.sleep(0.5)
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert rig.node.after_tick == []
