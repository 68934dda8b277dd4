"""Reads one hook server's JSON file.

``{"remote-endpoint": "/run/koordlet.sock", "failure-policy": "Ignore", "runtime-hooks": ["PreCreateContainer"]}``:
the keys are upstream's. Ours: ``"*"`` among the hooks stands for every stage; ``"timeout"`` is a number of seconds or a
duration such as "500ms"; ``"failure-policies"`` maps hook names to policies of their own; ``"advice"`` lists hooks that
no call has to wait for, except for pods with one of the runtime handlers in ``"await-handlers"``; ``"failed-calls"``
asks for after hooks of calls that failed, too. Invariant: a spec is valid as a whole or there is none; every mistake is
a ``HookFileError`` with file, key and value. Keys that we do not know are ignored, and hook names that we do not know
are accepted and never match, both as upstream does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from runtimeproxy.hooks.stages import ALL, STAGES, CallStage

MAX_FILE_BYTES = 64 * 1024
MAX_SOCKET_PATH_BYTES = 107  # sun_path less its NUL
MAX_TIMEOUT_S = 60.0
SCHEME = "unix://"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


class FailurePolicy(Enum):
    FAIL = "Fail"  # a call that cannot be made refuses the CRI request
    IGNORE = "Ignore"  # the CRI request goes on as if the server had no opinion


class HookFileError(ValueError):
    """A file cannot be used; ``key`` is the JSON key, empty for the file as a whole."""

    def __init__(self, file: str, key: str, value: object, reason: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 120 else f"{shown[:120]}…"
        super().__init__(f"{file}: {key}: {shown}: {reason}" if key else f"{file}: {reason}")
        self.file = file
        self.key = key
        self.value = value


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A hook file's content. ``file`` is its name, ``endpoint`` an absolute socket path, ``timeout_s`` None: the
    default.

    ``advice``: stages at which the server wants to know and not to edit, unless the pod has one of
    ``awaited_handlers``.
    ``policy`` is that of the stages which ``stage_policies`` does not name.
    """

    file: str
    endpoint: str
    policy: FailurePolicy
    stages: frozenset[str]
    timeout_s: float | None = None
    unknown_stages: tuple[str, ...] = ()
    advice: frozenset[str] = frozenset()
    awaited_handlers: frozenset[str] = frozenset()
    stage_policies: tuple[tuple[str, FailurePolicy], ...] = ()
    failed_calls: bool = False

    def policy_at(self, stage: str) -> FailurePolicy:
        """Returns the policy for a CRI request when the server cannot be asked at this stage."""
        return dict(self.stage_policies).get(stage, self.policy)


def parse(file: str, content: bytes) -> ServerSpec:
    """Returns the spec that ``content`` describes; raises HookFileError."""
    import json  # noqa: PLC0415 - a proxy without hook servers starts without it

    if len(content) > MAX_FILE_BYTES:
        raise HookFileError(file, "", None, f"larger than {MAX_FILE_BYTES} bytes")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:  # ValueError: JSON and UTF-8 alike
        raise HookFileError(file, "", None, f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise HookFileError(file, "", None, "not a JSON object")
    stages, unknown = _stages(file, document.get("runtime-hooks"))
    return ServerSpec(
        file=file,
        endpoint=_endpoint(file, document.get("remote-endpoint")),
        policy=_policy(file, "failure-policy", document.get("failure-policy"), FailurePolicy.IGNORE),
        stages=stages,
        timeout_s=_timeout_s(file, document.get("timeout")),
        unknown_stages=unknown,
        advice=_advice(file, document.get("advice", [])),
        awaited_handlers=frozenset(_texts(file, "await-handlers", document.get("await-handlers", []))),
        stage_policies=_stage_policies(file, document.get("failure-policies")),
        failed_calls=_boolean(file, "failed-calls", document.get("failed-calls")),
    )


def _endpoint(file: str, raw: object) -> str:
    if not isinstance(raw, str):
        raise HookFileError(file, "remote-endpoint", raw, "must be the path of a unix socket")
    path = raw.removeprefix(SCHEME)
    if not path.startswith("/") or "\0" in path:
        raise HookFileError(file, "remote-endpoint", raw, "must be an absolute path")
    if len(path.encode("utf-8", "surrogatepass")) > MAX_SOCKET_PATH_BYTES:
        raise HookFileError(file, "remote-endpoint", raw, f"longer than {MAX_SOCKET_PATH_BYTES} bytes")
    return path


def _policy(file: str, key: str, raw: object, default: FailurePolicy | None = None) -> FailurePolicy:
    if raw is None and default is not None:
        return default
    for policy in FailurePolicy:
        if raw == policy.value:
            return policy
    raise HookFileError(file, key, raw, "must be Fail or Ignore")


def _stage_policies(file: str, raw: object) -> tuple[tuple[str, FailurePolicy], ...]:
    """Returns the policies by stage; a name that no stage has is an error, since its writer means a stage."""
    key = "failure-policies"
    if raw is None:
        return ()
    if not isinstance(raw, dict):
        raise HookFileError(file, key, raw, "must be an object of hook names and policies")
    for stage in raw:
        if stage not in STAGES:
            raise HookFileError(file, key, stage, "is no hook that this proxy calls")
    return tuple((stage, _policy(file, f"{key}: {stage}", policy)) for stage, policy in raw.items())


def _texts(file: str, key: str, raw: object, kind: str = "runtime handlers") -> list[str]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        raise HookFileError(file, key, raw, f"must be a list of {kind}")
    return raw


def _advice(file: str, raw: object) -> frozenset[str]:
    stages = frozenset(_texts(file, "advice", raw, "hook names"))
    if not stages <= {CallStage.PRE_RUN_POD}:
        raise HookFileError(file, "advice", raw, f"only {CallStage.PRE_RUN_POD.value} can be advice")
    return stages


def _stages(file: str, value: object) -> tuple[frozenset[str], tuple[str, ...]]:
    raw = _texts(file, "runtime-hooks", value, "hook names")
    if ALL in raw:
        return STAGES, ()
    return STAGES.intersection(raw), tuple(item for item in raw if item not in STAGES)


def _boolean(file: str, key: str, raw: object) -> bool:
    if raw is None or isinstance(raw, bool):
        return bool(raw)
    raise HookFileError(file, key, raw, "must be true or false, or be left out (false)")


def _timeout_s(file: str, raw: object) -> float | None:
    if raw is None:
        return None
    seconds = 0.0
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        seconds = float(raw)
    elif isinstance(raw, str) and (match := _DURATION.fullmatch(raw)):
        seconds = float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds <= MAX_TIMEOUT_S:
        raise HookFileError(file, "timeout", raw, f'must be seconds or like "500ms", up to {MAX_TIMEOUT_S:g} s')
    return seconds
