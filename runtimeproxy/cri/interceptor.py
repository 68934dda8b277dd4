"""The relay's interceptor for CRI: plans which streams are held or tapped, and handles their requests and answers.

It starts without protobuf: the engine that reads messages is loaded by ``warm_up`` after the first connection was
accepted, or by the first intercepted call. One that cannot be loaded (a package change that is half done) is tried
again, less and less often; until then the only requests held are those that a server under policy Fail wants refused.
Invariant: ``plan`` is always in step with the hook servers and the cache, and ``version`` changes with it. What
``request`` raises, the relay forwards (or refuses where a server of the stage has policy Fail). ``tapped``,
``answered`` and the tasks never raise: a failure is counted and logged, and the cache is filled from the runtime's own
list again.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, cast

from koord.http2.grpc import OK, RESOURCE_EXHAUSTED
from runtimeproxy.audit import Audit
from runtimeproxy.cri.exempt import Exemptions
from runtimeproxy.cri.handlercontext import Commit, HandlerContext, HookOptions, NotifyTarget, log
from runtimeproxy.cri.methods import plans
from runtimeproxy.cri.objectcache import ObjectCache
from runtimeproxy.cri.requested import LARGEST_BYTES, STATUSES, NoRoom, restored
from runtimeproxy.cri.updaterecords import UpdateRecords
from runtimeproxy.hooks.client import Connect, HookClient
from runtimeproxy.hooks.directory import LoadedHookFile
from runtimeproxy.intercept import PASS, Call, CannotBeEdited, Forward, Refuse, StreamPlan
from runtimeproxy.metrics import Metrics
from runtimeproxy.wire.protowire import MalformedMessage, TooManyFields

if TYPE_CHECKING:
    from runtimeproxy.cri.engine import Engine

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0  # between two attempts to load the engine, or to list the sandboxes
LIST_AGAIN_S = 600.0  # while a sandbox may have been edited: its end may have been missed
RETIRED_S = 60.0  # how long a replaced hook server may still answer those who asked it before


class EngineMissing(Exception):
    """The code that reads messages cannot be loaded now."""


class CriInterceptor:
    """Holds, taps and rewrites CRI's calls. ``connect`` makes unary callers of socket paths, ``runtime_path`` is the
    runtime's socket, ``clock`` monotonic seconds as in ``Call.started``, ``updates`` keeps what kubelet's updates
    changed, ``proc`` the root of procfs.
    """

    def __init__(
        self,
        options: HookOptions,
        connect: Connect,
        runtime_path: str,
        *,
        audit: Audit,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        updates: UpdateRecords | None = None,
        proc: str = "/proc",
    ) -> None:
        self._connect = connect
        self._runtime_path = runtime_path
        self._context = HandlerContext(
            options, ObjectCache(), Exemptions(proc), audit, metrics, clock, updates or UpdateRecords("")
        )
        self._servers: dict[LoadedHookFile, HookClient] = {}
        self._retired: set[HookClient] = set()
        self._engine: Engine | None = None
        self._missing = False  # the engine could not be loaded when it was tried last
        self._tasks: set[asyncio.Task[None]] = set()
        self._learning: asyncio.Task[None] | None = None
        self._list_again_at = 0.0
        self._plans: Mapping[str, StreamPlan] = {}
        self.version = 0
        self._held_creates = False
        self._replan()

    @property
    def servers(self) -> tuple[HookClient, ...]:
        """The hook servers in the order in which they are asked."""
        return self._context.chain.servers

    @property
    def holds_creates(self) -> bool:
        """Whether CreateContainer is held since the cache may lack an edited sandbox, also where no server asks."""
        return self._held_creates

    def use(self, loaded: tuple[LoadedHookFile, ...]) -> None:
        """Takes these hook servers from now on; one whose file did not change keeps its connection and its breaker."""
        before = self._servers
        self._servers = {each: before[each] if each in before else self._server(each) for each in loaded}
        self._context.use(tuple(self._servers.values()))
        for server in [before[each] for each in before if each not in self._servers]:
            self._retire(server)
        self._replan()
        if self._engine is not None:
            self._start_task(self._connect_servers(self._engine))

    def configure(self, options: HookOptions) -> None:
        """Takes these settings from now on."""
        self._context.options = options
        for server in self.servers:
            server.default_timeout_s = options.hook_timeout_s

    async def warm_up(self) -> None:
        """Loads the engine, after the first accept and off the loop; begins to learn the sandboxes."""
        try:
            await self._warm_up()
        except Exception as error:  # noqa: BLE001 - the root of a task
            self._context.fault("loading", error)

    async def _warm_up(self) -> None:
        pause_s = FIRST_PAUSE_S
        while self._engine is None:
            try:
                importlib.invalidate_caches()
                await asyncio.get_running_loop().run_in_executor(None, _engine_type)
                self._load()
            except Exception as error:  # noqa: BLE001 - an import may raise anything
                self._note_missing_engine(error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def plan(self, path: str) -> StreamPlan:
        """Returns the plan of a path. The relay calls this while it reads, so nothing here may fail."""
        return self._plans[path] if path in self._plans else PASS  # noqa: SIM401

    async def request(self, call: Call, message: bytes) -> Forward | Refuse:
        try:
            decision, call.note = await self._loaded().held(call, message)
        except TooManyFields as error:
            raise CannotBeEdited("too many fields", RESOURCE_EXHAUSTED) from error
        return decision

    def tapped(self, call: Call, message: bytes) -> None:
        try:
            call.note = self._loaded().tapped(call.path, message)
        except EngineMissing:
            return  # counted when it was found missing
        except MalformedMessage as error:
            log.warning("%s passed, but the cache cannot read it: %s", call.path, error)
        except Exception as error:  # noqa: BLE001 - the request has gone on already
            self._distrust_cache("tapped", error)

    def answered(self, call: Call, status: int, message: bytes | None) -> None:
        """Takes the runtime's answer: of a call that succeeded, what was noted at the request goes into the cache and
        to the hook servers of the stage behind it; of one that failed, only those servers are told.
        """
        try:
            if status == OK and call.note is not None:
                self._commit(cast(Commit, call.note), message)
            elif isinstance(call.note, NotifyTarget):
                call.note.tell(status)
            if self._engine is not None:  # a hook server may have been restarted since, in another pod
                self._engine.learn_own_pods()
        except MalformedMessage as error:
            log.warning("the cache cannot read the answer to %s: %s", call.path, error)
        except Exception as error:  # noqa: BLE001 - the answer has gone on already
            self._distrust_cache("answered", error)

    def _commit(self, commit: Commit, message: bytes | None) -> None:
        commit(message)
        cache, metrics = self._context.cache, self._context.metrics
        metrics.cached_pods, metrics.cached_containers = cache.sizes
        if cache.hold_creates != self._held_creates:
            self._replan()
        if cache.hold_creates and self._engine is not None and self._context.clock() >= self._list_again_at:
            self._relearn(self._engine)

    def _distrust_cache(self, doing: str, error: Exception) -> None:
        """Holds containers until the runtime's list was read again: the cache may lack an object by now."""
        self._context.fault(doing, error)
        try:
            self._context.cache.distrust()
            self._replan()
            if self._engine is not None:
                self._relearn(self._engine, FIRST_PAUSE_S)
        except Exception as also:  # noqa: BLE001 - as above
            self._context.fault("learning", also)

    def rewritten(self, path: str, message: bytes) -> bytes:
        metrics = self._context.metrics
        try:
            if len(message) > LARGEST_BYTES:
                metrics.not_rewritten["large"] += 1
                return message
            answer = restored(message, STATUSES[path[path.rindex("/") + 1 :]], self._context.updates.read)
        except NoRoom:
            metrics.not_rewritten["no record"] += 1
        except MalformedMessage as error:
            log.warning("%s: the answer passes as it is: %s", path, error)
        except Exception as error:  # noqa: BLE001 - the answer goes on as it came
            self._context.fault("restoring", error)
        else:
            metrics.restored_statuses += answer is not message
            return answer
        return message

    def forget(self) -> None:
        """Reads everything from the runtime again, as after a start."""
        try:
            self._context.cache = ObjectCache()
            self._replan()
            if self._engine is not None:
                self._relearn(self._engine)
        except Exception as error:  # noqa: BLE001 - switching the bypass off has more to do
            self._distrust_cache("learning", error)

    def dump(self) -> Callable[[], dict[str, object]]:
        """Copies servers and cache; the result makes JSON values of the copy, in any thread.

        Environment values and foreign annotations are not among them.
        """
        servers: list[object] = [
            {
                "file": server.spec.file,
                "endpoint": server.spec.endpoint,
                "policy": server.spec.policy.value,
                "stagePolicies": {stage: policy.value for stage, policy in server.spec.stage_policies},
                "stages": sorted(server.spec.stages),
                "timeoutSeconds": server.timeout_s,
            }
            for server in self.servers
        ]
        cache = dict if self._engine is None else self._engine.dump()
        return lambda: {"servers": servers, **cache()}

    async def finish(self, timeout_s: float) -> None:
        """Delivers post hooks for so long, and then closes: no call follows."""
        told = [asyncio.ensure_future(server.delivered()) for server in (*self.servers, *self._retired)]
        if told:
            _, late = await asyncio.wait(told, timeout=timeout_s)
            for task in late:
                task.cancel()
        self.close()

    def close(self) -> None:
        """Closes every connection and drops the notifications that were not delivered."""
        for server in (*self.servers, *self._retired):
            server.close()
        for task in self._tasks:
            task.cancel()
        self._context.worker.close()
        if self._engine is not None:
            self._engine.close()

    def _loaded(self) -> Engine:
        """Returns the engine; raises EngineMissing, at once if it could not be loaded before."""
        if self._engine is None:
            if self._missing:
                raise EngineMissing("it could not be loaded before")
            try:
                return self._load()
            except Exception as error:
                self._note_missing_engine(error)
                raise EngineMissing(repr(error)) from error
        return self._engine

    def _load(self) -> Engine:
        if self._engine is None:
            engine = _engine_type()(self._context, self._connect(self._runtime_path))
            self._relearn(engine)
            self._engine = engine
            if self._missing:
                self._missing = False
                self._replan()
                log.info("requests are edited again")
        return self._engine

    def _note_missing_engine(self, error: Exception) -> None:
        """Lets requests go on unedited: the engine cannot be loaded now."""
        if self._missing:
            self._context.metrics.fault("loading")
            return
        self._missing = True
        self._context.fault("loading", error)
        self._replan()

    def _relearn(self, engine: Engine, pause_s: float = 0.0) -> None:
        if self._learning is not None:
            self._learning.cancel()
        self._list_again_at = self._context.clock() + LIST_AGAIN_S
        self._learning = self._start_task(self._learn(engine, pause_s))

    def _start_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begins ``work``, which raises nothing."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _learn(self, engine: Engine, pause_s: float) -> None:
        """Learns which sandboxes there are, for as long as it takes, and which of them the hook servers run in."""
        learned = False
        while not learned:
            try:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * max(pause_s, FIRST_PAUSE_S / 2), LONGEST_PAUSE_S)
                learned = await engine.learn_sandboxes()
                self._replan()
                if learned:
                    await self._connect_servers(engine)
            except Exception as error:  # noqa: BLE001 - the root of a task; what failed once may do the next time
                self._context.fault("learning", error)

    async def _connect_servers(self, engine: Engine) -> None:
        """Connects to the hook servers, so that their own pods are known before the first of them restarts."""
        try:
            await asyncio.gather(*(server.greet() for server in self.servers))
            engine.learn_own_pods()
        except Exception as error:  # noqa: BLE001 - the root of a task
            self._context.fault("greeting", error)

    def _replan(self) -> None:
        context = self._context
        self._held_creates = context.cache.hold_creates
        self._plans = plans(context.holds, context.fails_closed, self._held_creates)
        if self._missing:
            self._plans = {path: plan for path, plan in self._plans.items() if plan.fail_closed}
        self.version += 1

    def _server(self, loaded: LoadedHookFile) -> HookClient:
        spec = loaded.spec
        options = self._context.options
        return HookClient(
            spec,
            self._connect(spec.endpoint),
            default_timeout_s=options.hook_timeout_s,
            version=options.version,
            metrics=self._context.metrics,
            clock=self._context.clock,
        )

    def _retire(self, server: HookClient) -> None:
        """Closes a client that is no longer used, once all calls that ask it have their answer."""
        self._retired.add(server)
        asyncio.get_running_loop().call_later(RETIRED_S, self._close_retired, server)

    def _close_retired(self, server: HookClient) -> None:
        self._retired.discard(server)
        server.close()


def _engine_type() -> type[Engine]:
    from runtimeproxy.cri.engine import Engine  # noqa: PLC0415 - protobuf: after the first accept

    return Engine
