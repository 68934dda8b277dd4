"""The relay's interceptor for CRI: which streams to hold or tap, and what becomes of them.

It starts without protobuf: the engine that reads messages is loaded by ``warm_up`` after the first connection was
accepted, or by the first intercepted call. Invariant: ``plan`` is always in step with the hook servers and the cache,
and ``version`` changes with it. What ``request`` raises, the relay forwards (or refuses where a server of the stage has
policy Fail); ``tapped`` and ``answered`` never raise, what they cannot read is logged and forgotten.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, cast

from runtimeproxy.cri.exempt import Exemptions
from runtimeproxy.cri.methods import plans
from runtimeproxy.cri.store import Store
from runtimeproxy.cri.world import Commit, HookOptions, Later, World, log
from runtimeproxy.hooks.directory import Loaded
from runtimeproxy.hooks.observe import Audit, Metrics
from runtimeproxy.hooks.server import Connect, HookServer
from runtimeproxy.intercept import PASS, Call, Forward, Plan, Refuse
from runtimeproxy.wire.protowire import MalformedMessage

if TYPE_CHECKING:
    from runtimeproxy.cri.engine import Engine

LONGEST_PAUSE_S = 30.0  # between two attempts to list the runtime's sandboxes
RETIRED_S = 60.0  # how long a replaced hook server may still answer those who asked it before
OK = 0


def _now(work: Callable[[], None]) -> None:
    work()


class CriInterceptor:
    """``connect`` makes unary callers of socket paths, ``runtime_path`` is the runtime's socket, ``clock`` monotonic
    seconds as in ``Call.started``, ``proc`` the root of procfs; ``later`` takes work that no request waits for."""

    def __init__(
        self,
        options: HookOptions,
        connect: Connect,
        runtime_path: str,
        *,
        audit: Audit,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
        later: Later = _now,
    ) -> None:
        self._connect = connect
        self._runtime_path = runtime_path
        self._world = World(options, Store(), Exemptions(proc), audit, metrics, clock, later)
        self._servers: dict[Loaded, HookServer] = {}
        self._retired: set[HookServer] = set()
        self._engine: Engine | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._plans: Mapping[str, Plan] = {}
        self.version = 0
        self._held_creates = False
        self._replan()

    @property
    def servers(self) -> tuple[HookServer, ...]:
        """The hook servers in the order in which they are asked."""
        return self._world.chain.servers

    def use(self, loaded: tuple[Loaded, ...]) -> None:
        """Take these hook servers from now on; one whose file did not change keeps its connection and its breaker."""
        before, self._servers = self._servers, {}
        for each in loaded:
            self._servers[each] = before.pop(each) if each in before else self._server(each)
        self._world.use(tuple(self._servers.values()))
        for server in before.values():
            self._retire(server)
        self._replan()
        if self._engine is not None:
            self._begin(self._acquaint(self._engine))

    def configure(self, options: HookOptions) -> None:
        """Take these settings from now on."""
        self._world.options = options
        for server in self.servers:
            server.default_timeout_s = options.hook_timeout_s

    async def warm_up(self) -> None:
        """After the first accept: load what reads messages, off the loop, and begin to learn which sandboxes exist."""
        await asyncio.get_running_loop().run_in_executor(None, _engine_type)
        self._loaded()

    def plan(self, path: str) -> Plan:
        return self._plans.get(path, PASS)

    async def request(self, call: Call, message: bytes) -> Forward | Refuse:
        decision, call.note = await self._loaded().held(call, message)
        return decision

    def tapped(self, call: Call, message: bytes) -> None:
        try:
            call.note = self._loaded().tapped(call.path, message)
        except MalformedMessage as error:
            log.warning("%s passed, but cannot be remembered: %s", call.path, error)

    def answered(self, call: Call, status: int, message: bytes | None) -> None:
        try:
            if status == OK and call.note is not None:
                self._commit(cast(Commit, call.note), message)
            if self._engine is not None:  # who was asked may be another process than the time before
                self._engine.learn_own_pods()
        except MalformedMessage as error:
            log.warning("the answer to %s cannot be remembered: %s", call.path, error)

    def _commit(self, commit: Commit, message: bytes | None) -> None:
        commit(message)
        store = self._world.store
        self._world.metrics.cache_size(*store.sizes)
        if store.hold_creates != self._held_creates:
            self._replan()

    def forget(self) -> None:
        """As after a start: everything is read from the runtime again."""
        self._world.store = Store()
        self._replan()
        if self._engine is not None:
            self._begin(self._learn(self._engine))

    def dump(self) -> dict[str, object]:
        """Servers and cache as JSON values, without environment values and foreign annotations."""
        servers: list[object] = [
            {
                "file": server.spec.file,
                "endpoint": server.spec.endpoint,
                "policy": server.spec.policy.value,
                "stages": sorted(server.spec.stages),
                "timeoutSeconds": server.timeout_s,
            }
            for server in self.servers
        ]
        cache = {} if self._engine is None else self._engine.dump()
        return {"servers": servers, **cache}

    def close(self) -> None:
        """Close every connection and drop what post hooks have not heard yet."""
        for server in (*self.servers, *self._retired):
            server.close()
        for task in self._tasks:
            task.cancel()
        if self._engine is not None:
            self._engine.close()

    def _loaded(self) -> Engine:
        if self._engine is None:
            self._engine = _engine_type()(self._world, self._connect(self._runtime_path))
            self._begin(self._learn(self._engine))
        return self._engine

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _learn(self, engine: Engine) -> None:
        """Which sandboxes there are, for as long as it takes, and which of them the hook servers live in."""
        pause_s = 1.0
        while not await engine.learn_sandboxes():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        self._replan()
        await self._acquaint(engine)

    async def _acquaint(self, engine: Engine) -> None:
        """Connect to the hook servers, so that their own pods are known before the first of them restarts."""
        await asyncio.gather(*(server.greet() for server in self.servers))
        engine.learn_own_pods()

    def _replan(self) -> None:
        world = self._world
        self._held_creates = world.store.hold_creates
        self.version += 1
        self._plans = plans(world.wants, world.fails_closed, self._held_creates)

    def _server(self, loaded: Loaded) -> HookServer:
        spec = loaded.spec
        options = self._world.options
        return HookServer(
            spec,
            self._connect(spec.endpoint),
            default_timeout_s=options.hook_timeout_s,
            version=options.version,
            metrics=self._world.metrics,
            clock=self._world.clock,
        )

    def _retire(self, server: HookServer) -> None:
        """Close a server that is no longer used, once those who are asking it have their answer."""
        self._retired.add(server)
        asyncio.get_running_loop().call_later(RETIRED_S, self._close_retired, server)

    def _close_retired(self, server: HookServer) -> None:
        self._retired.discard(server)
        server.close()


def _engine_type() -> type[Engine]:
    from runtimeproxy.cri.engine import Engine  # noqa: PLC0415 - protobuf: after the first accept

    return Engine
