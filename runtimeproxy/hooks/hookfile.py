"""One hook server as its JSON file describes it.

``{"remote-endpoint": "/run/koordlet.sock", "failure-policy": "Ignore", "runtime-hooks": ["PreCreateContainer"]}``:
the keys are upstream's. Ours: ``"*"`` among the hooks stands for every stage, and ``"timeout"`` is a number of seconds
or a duration such as "500ms". Invariant: a spec is valid as a whole or there is none; every mistake is a
``HookFileError`` with file, key and value. Keys that we do not know are ignored, and hook names that we do not know
are accepted and never match, both as upstream does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from runtimeproxy.hooks.stages import ALL, STAGES

MAX_FILE_BYTES = 64 * 1024
MAX_SOCKET_PATH_BYTES = 107  # sun_path less its NUL
MAX_TIMEOUT_S = 60.0
SCHEME = "unix://"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


class Policy(Enum):
    FAIL = "Fail"  # a call that cannot be made refuses the CRI request
    IGNORE = "Ignore"  # the CRI request goes on as if the server had no opinion


class HookFileError(ValueError):
    """What is wrong in which file; ``key`` is the JSON key, empty for the file as a whole."""

    def __init__(self, file: str, key: str, value: object, reason: str) -> None:
        shown = repr(value)
        shown = shown if len(shown) <= 120 else f"{shown[:120]}…"
        super().__init__(f"{file}: {key}: {shown}: {reason}" if key else f"{file}: {reason}")
        self.file = file
        self.key = key
        self.value = value


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """``file`` is the file's name, ``endpoint`` an absolute socket path, ``timeout_s`` None for the default."""

    file: str
    endpoint: str
    policy: Policy
    stages: frozenset[str]
    timeout_s: float | None = None
    unknown_stages: tuple[str, ...] = ()


def parse(file: str, content: bytes) -> ServerSpec:
    """The spec that ``content`` describes; raises HookFileError."""
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
        policy=_policy(file, document.get("failure-policy")),
        stages=stages,
        timeout_s=_timeout_s(file, document.get("timeout")),
        unknown_stages=unknown,
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


def _policy(file: str, raw: object) -> Policy:
    if raw is None:
        return Policy.IGNORE
    for policy in Policy:
        if raw == policy.value:
            return policy
    raise HookFileError(file, "failure-policy", raw, "must be Fail or Ignore, or be left out (Ignore)")


def _stages(file: str, raw: object) -> tuple[frozenset[str], tuple[str, ...]]:
    if not isinstance(raw, list) or not all(isinstance(item, str) for item in raw):
        raise HookFileError(file, "runtime-hooks", raw, "must be a list of hook names")
    if ALL in raw:
        return STAGES, ()
    return STAGES.intersection(raw), tuple(item for item in raw if item not in STAGES)


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
