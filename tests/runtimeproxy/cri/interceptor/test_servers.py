"""Servers and settings that come, change and go."""

from __future__ import annotations

import json
import time

from runtimeproxy.cri.exempt import SkipRules
from tests.runtimeproxy.cri.interceptor.servers import MOVED, best_effort, moving
from tests.runtimeproxy.cri.rig import Rig, container
from tests.runtimeproxy.hooks.doubles import hanging, koordlet


async def test_an_unchanged_file_keeps_its_server_and_a_changed_one_gets_a_new_one() -> None:
    rig = Rig({"a.json": koordlet(), "b.json": koordlet()})
    first, second = rig.interceptor.servers
    changed = rig.loaded[1].__class__(rig.loaded[1].spec, (2, 2, 2))
    rig.interceptor.use((rig.loaded[0], changed))
    assert rig.interceptor.servers[0] is first
    assert rig.interceptor.servers[1] is not second
    assert not rig.server("b.json").closed
    rig.interceptor.close()
    assert rig.server("b.json").closed


async def test_settings_change_for_servers_that_have_none_of_their_own() -> None:
    rig = Rig({"a.json": hanging}, hook_timeout_s=10.0)
    options = Rig({}, hook_timeout_s=0.02, skip=SkipRules(namespaces=("other",))).interceptor
    rig.interceptor.configure(options._context.options)
    begun = time.monotonic()
    await rig.run_pod()
    assert time.monotonic() - begun < 1.0


async def test_the_dump_is_json_without_secrets() -> None:
    rig = Rig({"a.json": koordlet(best_effort, moving)})
    assert list(rig.interceptor.dump()()) == ["servers"]
    secret = container()
    secret.envs.add(key="TOKEN", value=b"s3cret")
    secret.annotations["example.com/key"] = "s3cret"
    await rig.run_pod()
    await rig.create(secret)
    text = json.dumps(rig.interceptor.dump()())
    assert "s3cret" not in text
    assert "envs[TOKEN]" in text
    assert '"cpu_shares": "1024"' in text
    assert MOVED in text
    rig.interceptor.close()
