"""A hook file is valid as a whole or an error that names file, key and value."""

from __future__ import annotations

import json

import pytest

from runtimeproxy.hooks.hookfile import FailurePolicy, HookFileError, parse
from runtimeproxy.hooks.stages import STAGES

GOOD = {"remote-endpoint": "/run/koordlet.sock", "failure-policy": "Ignore", "runtime-hooks": ["PreCreateContainer"]}


def content(**changes: object) -> bytes:
    keys = {name.replace("_", "-"): value for name, value in changes.items()}
    return json.dumps({key: value for key, value in (GOOD | keys).items() if value != "absent"}).encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b'{"remote-endpoint": "/run/x', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 20_000, "not JSON"),
        (b"[]", "not a JSON object"),
        (b" " * (64 * 1024 + 1), "larger than"),
        (content(remote_endpoint="absent"), "remote-endpoint: None"),
        (content(remote_endpoint="run/x.sock"), "remote-endpoint: 'run/x.sock': must be an absolute path"),
        (content(remote_endpoint="/" + "x" * 107), "longer than 107 bytes"),
        (content(remote_endpoint=7), "remote-endpoint: 7"),
        (content(failure_policy="fail"), "failure-policy: 'fail'"),
        (content(failure_policy=""), "failure-policy: ''"),
        (content(failure_policy=["Fail"]), "failure-policy: ['Fail']"),
        (content(failure_policies=["Fail"]), "failure-policies: ['Fail']: must be an object"),
        (content(failure_policies={"PreCreate": "Fail"}), "failure-policies: 'PreCreate': is no hook"),
        (content(failure_policies={"*": "Fail"}), "failure-policies: '*': is no hook"),
        (
            content(failure_policies={"PreCreateContainer": "fail"}),
            "failure-policies: PreCreateContainer: 'fail': must be",
        ),
        (content(failure_policies={"PreCreateContainer": None}), "failure-policies: PreCreateContainer: None: must be"),
        (content(failed_calls="true"), "failed-calls: 'true': must be true or false"),
        (content(runtime_hooks="absent"), "runtime-hooks: None"),
        (content(runtime_hooks="PreCreateContainer"), "runtime-hooks: 'PreCreateContainer'"),
        (content(runtime_hooks=[1]), "runtime-hooks: [1]"),
        (content(timeout="soon"), "timeout: 'soon'"),
        (content(timeout=0), "timeout: 0"),
        (content(timeout=-1), "timeout: -1"),
        (content(timeout=True), "timeout: True"),
        (content(timeout="61s"), "timeout: '61s'"),
        (content(advice="PreRunPodSandbox"), "advice: 'PreRunPodSandbox': must be a list of hook names"),
        (content(advice=["PreCreateContainer"]), "only PreRunPodSandbox can be advice"),
        (content(await_handlers={"kata": 1}), "await-handlers: {'kata': 1}: must be a list of runtime handlers"),
    ],
)
def test_mistakes_name_file_key_and_value(data: bytes, says: str) -> None:
    with pytest.raises(HookFileError) as caught:
        parse("x.json", data)
    assert str(caught.value).startswith("x.json: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "attribute", "value"),
    [
        ({}, "endpoint", "/run/koordlet.sock"),
        ({"remote_endpoint": "unix:///run/x.sock"}, "endpoint", "/run/x.sock"),
        ({}, "policy", FailurePolicy.IGNORE),
        ({"failure_policy": "absent"}, "policy", FailurePolicy.IGNORE),
        ({"failure_policy": "Fail"}, "policy", FailurePolicy.FAIL),
        ({}, "stages", frozenset({"PreCreateContainer"})),
        ({"runtime_hooks": ["*"]}, "stages", STAGES),
        ({"runtime_hooks": ["PreBoot", "PreRemoveRunPodSandbox"]}, "stages", frozenset({"PreRemoveRunPodSandbox"})),
        ({"runtime_hooks": ["PreBoot"]}, "unknown_stages", ("PreBoot",)),
        ({}, "failed_calls", False),
        ({"failed_calls": True}, "failed_calls", True),
        ({}, "timeout_s", None),
        ({}, "advice", frozenset()),
        ({"advice": ["PreRunPodSandbox"]}, "advice", frozenset({"PreRunPodSandbox"})),
        ({"await_handlers": ["kata"]}, "awaited_handlers", frozenset({"kata"})),
        ({"timeout": 2}, "timeout_s", 2.0),
        ({"timeout": 0.25}, "timeout_s", 0.25),
        ({"timeout": "1s"}, "timeout_s", 1.0),
        ({"timeout": "500ms"}, "timeout_s", 0.5),
        ({"timeout": "1m"}, "timeout_s", 60.0),
        ({"comment": "unknown keys are upstream's to add"}, "file", "x.json"),
    ],
)
def test_what_a_file_says(changes: dict[str, object], attribute: str, value: object) -> None:
    assert getattr(parse("x.json", content(**changes)), attribute) == value


@pytest.mark.parametrize(
    ("changes", "policies"),
    [
        ({}, ("Ignore", "Ignore")),
        ({"failure_policy": "Fail"}, ("Fail", "Fail")),
        ({"failure_policies": {"PreCreateContainer": "Fail"}}, ("Fail", "Ignore")),
        ({"failure_policy": "Fail", "failure_policies": {"PreRunPodSandbox": "Ignore"}}, ("Fail", "Ignore")),
        ({"failure_policy": "Fail", "failure_policies": {}}, ("Fail", "Fail")),
    ],
)
def test_a_hook_may_have_a_policy_of_its_own(changes: dict[str, object], policies: tuple[str, str]) -> None:
    spec = parse("x.json", content(**changes))
    assert tuple(spec.policy_at(stage).value for stage in ("PreCreateContainer", "PreRunPodSandbox")) == policies
    assert hash(spec) == hash(parse("x.json", content(**changes)))
