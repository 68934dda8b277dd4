"""A hook server that only wants to know of sandboxes is told, and nobody waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from koord.pb.cri import api_pb2 as cri
from koord.pb.hooks import api_pb2 as hooks
from runtimeproxy.cri.exempt import SkipRules
from runtimeproxy.cri.record import RECORD
from runtimeproxy.hooks.hookfile import FailurePolicy
from runtimeproxy.intercept import PASS, Treatment
from tests.runtimeproxy.cri.rig import V1, Rig, pod
from tests.runtimeproxy.hooks.doubles import Handler, failing, hanging, saying
from tests.support.waiting import until

RUN_POD = "PreRunPodSandbox"
ADVICE = frozenset({RUN_POD})
EDIT = hooks.PodSandboxHookResponse(annotations={"koordinator.sh/a": "b"})


def rig(servers: Mapping[str, Handler], advised: tuple[str, ...], handlers: frozenset[str], **more: object) -> Rig:
    """``advised``: the hook files whose servers only want to know, but for pods of these runtime ``handlers``."""
    made = Rig(servers, **more)  # type: ignore[arg-type]
    made.interceptor.use(
        tuple(
            replace(each, spec=replace(each.spec, advice=ADVICE, awaited_handlers=handlers))
            if each.spec.file in advised
            else each
            for each in made.loaded
        )
    )
    return made


def told(made: Rig, file: str = "a.json") -> list[str]:
    """The pods that the server was asked about."""
    return [
        hooks.PodSandboxHookRequest.FromString(message).pod_meta.name
        for path, message in made.server(file).asked
        if path.endswith(f"{RUN_POD}Hook")
    ]


async def run(made: Rig, handler: str = "", name: str = "pod") -> None:
    config = pod()
    config.metadata.name = name
    request = cri.RunPodSandboxRequest(config=config, runtime_handler=handler)
    assert await made.call("RunPodSandbox", request, cri.RunPodSandboxResponse(pod_sandbox_id="p1")) is None


@pytest.mark.parametrize(
    ("advised", "handlers", "treatment"),
    [
        ((), (), Treatment.HOLD),
        (("a.json", "b.json"), (), Treatment.TAP),
        (("a.json",), (), Treatment.HOLD),
        (("a.json", "b.json"), ("kata",), Treatment.HOLD),
    ],
)
async def test_a_sandbox_is_held_only_if_somebody_may_have_to_be_waited_for(
    advised: tuple[str, ...], handlers: tuple[str, ...], treatment: Treatment
) -> None:
    made = rig({"a.json": saying(EDIT), "b.json": saying(EDIT)}, advised, frozenset(handlers))
    assert made.interceptor.plan(V1 + "RunPodSandbox").treatment is treatment
    assert made.interceptor.plan(V1 + "CreateContainer").treatment is Treatment.HOLD


@pytest.mark.parametrize("policy", FailurePolicy)
@pytest.mark.parametrize("handler", [saying(EDIT), failing(), hanging])
async def test_advice_is_told_and_changes_nothing(handler: Handler, policy: FailurePolicy) -> None:
    made = rig({"a.json": handler}, ("a.json",), frozenset(), policy=policy)
    await run(made)
    assert made.sent == cri.RunPodSandboxRequest(config=pod())
    await until(lambda: told(made) == ["pod"])
    made.interceptor.close()


async def test_pods_of_a_handler_that_is_awaited_are_edited_and_others_are_not() -> None:
    made = rig({"a.json": saying(EDIT)}, ("a.json",), frozenset({"kata"}))
    for handler, edited in (("", False), ("kata", True), ("runc", False)):
        await run(made, handler)
        assert ("koordinator.sh/a" in made.sent.config.annotations) is edited
    await until(lambda: len(told(made)) == 3)
    made.interceptor.close()


async def test_one_server_advises_and_another_is_waited_for() -> None:
    other = hooks.PodSandboxHookResponse(annotations={"koordinator.sh/b": "c"})
    made = rig({"a.json": saying(EDIT), "b.json": saying(other)}, ("a.json",), frozenset())
    await run(made)
    assert dict(made.sent.config.annotations) == {"note": "x", "koordinator.sh/b": "c", RECORD: '["koordinator.sh/b"]'}
    assert told(made, "b.json") == ["pod"]
    await until(lambda: told(made) == ["pod"])
    made.interceptor.close()


async def test_its_containers_know_their_pod_and_have_nothing_repeated() -> None:
    made = rig({"a.json": saying(EDIT)}, ("a.json",), frozenset())
    await run(made)
    made.server().handler = saying(hooks.ContainerResourceHookResponse())
    assert await made.create() is None
    assert made.sent.sandbox_config == pod()
    (question,) = [message for path, message in made.server().asked if path.endswith("PreCreateContainerHook")]
    assert hooks.ContainerResourceHookRequest.FromString(question).pod_meta.name == "pod"
    assert "PodSandboxStatus" not in made.runtime.calls
    made.interceptor.close()


async def test_nobody_is_told_of_a_pod_that_is_left_alone() -> None:
    made = rig({"a.json": saying(EDIT)}, ("a.json",), frozenset(), skip=SkipRules(namespaces=("ns",)))
    await run(made)
    await asyncio.sleep(0)
    assert told(made) == []
    assert made.interceptor.plan("/other") is PASS
