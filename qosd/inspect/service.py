"""NodeInspect.ListPods: the runtime's pods, what the hooks want for each container, and what the kernel holds.

Desired comes from the same engine that answers the proxy, fed with what the runtime was asked for; actual comes
from the cgroup files. Invariant: one container that goes away while it is looked at costs its own values only. A
runtime that does not answer is UNAVAILABLE with its endpoint and reason.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import grpc

from koord.host.cgroup import Tree
from koord.model import priority
from koord.pb.koord import inspect_pb2 as inspect
from koord.service import rpc
from qosd.hooks import engine
from qosd.hooks.context import PodContext, Request, Stage
from qosd.hooks.edits import Edits, Resources
from qosd.hooks.rules import Rules
from qosd.inspect import values
from qosd.inspect.runtime import Runtime, RuntimeContainer, RuntimeUnreachable, Sandbox
from qosd.rules import RulesSource

SERVICE = "koord.node.v1.NodeInspect"
READY = "SANDBOX_READY"


class Inspector:
    """Answers NodeInspect; ``now_ns`` is the wall clock."""

    def __init__(
        self, runtime: Runtime, tree: Tree, rules: RulesSource, now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._runtime, self._tree, self._rules, self._now_ns = runtime, tree, rules, now_ns

    def service(self) -> grpc.GenericRpcHandler:
        return rpc.service(
            SERVICE, {"ListPods": rpc.Unary(self._list_pods, inspect.ListPodsRequest, inspect.ListPodsResponse)}
        )

    async def _list_pods(self, request: inspect.ListPodsRequest, context: rpc.Context) -> inspect.ListPodsResponse:
        try:
            return await self.list_pods(request.namespace, request.name)
        except RuntimeUnreachable as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the container runtime does not answer: {error}")

    async def list_pods(self, namespace: str, name: str) -> inspect.ListPodsResponse:
        """Pods of ``namespace`` and ``name`` ("" = all); raises RuntimeUnreachable."""
        sandboxes, containers = await asyncio.gather(
            self._runtime.sandboxes(namespace, name), self._runtime.containers()
        )
        rules = self._rules.current
        pods = await asyncio.gather(*(self._pod(one, containers.get(one.id, []), rules) for one in sandboxes))
        return inspect.ListPodsResponse(pods=pods, observed_unix_ns=self._now_ns(), warnings=self._rules.warnings)

    async def _pod(self, sandbox: Sandbox, containers: list[RuntimeContainer], rules: Rules) -> inspect.Pod:
        parent = await self._runtime.cgroup_parent(sandbox.id)
        details = await asyncio.gather(*(self._runtime.detail(one.id) for one in containers))
        sandbox = replace(sandbox, cgroup_parent=parent)
        whole = context_of(sandbox, None)
        problems = list(whole.problems)
        shown = []
        for listed, (path, asked) in zip(containers, details, strict=True):
            container = replace(listed, cgroup_path=path, asked=asked)
            edits = engine.decide(context_of(sandbox, container), rules)
            problems.extend(edits.problems)
            shown.append(self._container(container, parent, edits, rules))
        derived = whole.derived(rules.node.derivation, running=sandbox.state == READY)
        priority_class = priority.effective(sandbox.labels, None, derived.qos)
        return inspect.Pod(
            namespace=sandbox.namespace,
            name=sandbox.name,
            uid=sandbox.uid,
            sandbox_id=sandbox.id,
            state=sandbox.state,
            qos_class=derived.qos,
            qos_source=derived.source,
            priority_class=priority_class,
            sub_priority=whole.said.priority or 0,
            cgroup_parent=parent,
            containers=shown,
            problems=list(dict.fromkeys(problems)),
        )

    def _container(self, container: RuntimeContainer, parent: str, edits: Edits, rules: Rules) -> inspect.Container:
        path = container.cgroup_path or values.likely_path(self._tree, parent, container.id)
        return inspect.Container(
            name=container.name,
            id=container.id,
            state=container.state,
            cgroup_path=path,
            values=values.compare(self._tree, path, edits, rules.host.page_bytes),
        )


def context_of(sandbox: Sandbox, container: RuntimeContainer | None) -> PodContext:
    """The context in which the proxy would ask about ``container`` today; the sandbox's own without one."""
    request = Request(
        stage=Stage.RUN_SANDBOX if container is None else Stage.CREATE,
        namespace=sandbox.namespace,
        name=sandbox.name,
        uid=sandbox.uid,
        labels=sandbox.labels,
        annotations=sandbox.annotations,
        cgroup_parent=sandbox.cgroup_parent,
        asked=Resources() if container is None else container.asked,
        container="" if container is None else container.name,
        container_annotations=None if container is None else container.annotations,
    )
    return PodContext.read(request)
