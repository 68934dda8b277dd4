"""The handlers by method. Importing this module imports protobuf, so the interceptor does it late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from koord.http2.grpc import UNIMPLEMENTED
from runtimeproxy.cri import methods
from runtimeproxy.cri.containers import Containers
from runtimeproxy.cri.dump import dump_cache
from runtimeproxy.cri.handlercontext import Commit, HandlerContext, log
from runtimeproxy.cri.rebuild import Rebuilder, RebuildFailed
from runtimeproxy.cri.restores import Restores
from runtimeproxy.cri.sandboxes import Decision, Sandboxes
from runtimeproxy.hooks.client import UnaryCaller
from runtimeproxy.intercept import Call


class Engine:
    """Handles messages; ``runtime`` calls the runtime itself, for what the cache lacks."""

    def __init__(self, context: HandlerContext, runtime: UnaryCaller) -> None:
        self._context = context
        self._rebuilder = Rebuilder(runtime, context.worker)
        pods = self._pods = Sandboxes(context, self._rebuilder)
        containers = Containers(context, self._rebuilder, pods)
        restores = Restores(context, pods, containers)
        self._held: dict[str, Callable[[Call, bytes, str], Awaitable[Decision]]] = {
            methods.RUN_POD: pods.run,
            methods.UPDATE_POD: pods.update,
            methods.REMOVE_POD: pods.remove,
            methods.RESTORE_POD: restores.restore,
            methods.CREATE: containers.create,
            methods.START: containers.start,
            methods.UPDATE: containers.update,
        }
        self._tapped: dict[str, Callable[[bytes, str], Commit]] = {
            methods.RUN_POD: lambda message, service: pods.passed_run(message),
            methods.STOP_POD: pods.stopped,
            methods.REMOVE_POD: lambda message, service: pods.removed(message),
            methods.UPDATE_POD: lambda message, service: pods.updated(message),
            methods.RESTORE_POD: lambda message, service: restores.passed_restore(message),
            methods.CREATE: lambda message, service: containers.passed_create(message),
            methods.START: containers.started,
            methods.STOP: containers.stopped,
            methods.REMOVE: containers.removed,
            methods.UPDATE: lambda message, service: containers.passed_update(message),
        }

    def held(self, call: Call, message: bytes) -> Awaitable[Decision]:
        """Decides on a held request. Raises typed errors for what it cannot read or find out."""
        service, method = methods.split(call.path)
        return self._held[method.name](call, message, service)

    def tapped(self, path: str, message: bytes) -> Commit:
        """Returns what to do once the runtime has accepted a request that passed. Raises MalformedMessage."""
        service, method = methods.split(path)
        return self._tapped[method.name](message, service)

    async def learn_sandboxes(self) -> bool:
        """Fills the cache from the runtime's own list of sandboxes; False if it cannot be had now."""
        for service in methods.SERVICES:
            cache = self._context.cache
            cache.listing()
            try:
                cache.listed(await self._rebuilder.sandboxes(service))
            except RebuildFailed as error:
                log.info("the runtime's sandboxes are not known yet: %s", error)
                if error.code != UNIMPLEMENTED:
                    return False
            else:
                await self._forget_removed(service)
                return True
        return False

    async def _forget_removed(self, service: str) -> None:
        """Drops the records of updates of containers that were removed while no proxy ran."""
        recorded = self._context.updates.ids()
        if recorded:
            try:
                self._context.updates.remove_others(recorded, await self._rebuilder.container_ids(service))
            except RebuildFailed as error:
                log.info("records of updates stay, the runtime does not tell which containers there are: %s", error)

    def learn_own_pods(self) -> None:
        """Learns which pods the connected hook servers run in."""
        self._pods.learn_own_pods()

    def dump(self) -> Callable[[], dict[str, object]]:
        """Copies the cache; the result makes JSON values of the copy."""
        return dump_cache(self._context.cache)

    def close(self) -> None:
        self._rebuilder.close()
