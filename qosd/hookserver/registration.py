"""The file by which a runtime proxy finds this hook server.

Its keys are Koordinator's, so that either proxy reads it. It is written whole or not at all (a temporary name that no
proxy reads, then a rename), as the last step of start-up, when the socket already answers, and again when other rules
ask for another one. Stopping is not disabling: it stays when qosd ends, and with policy Ignore a proxy that gets no
answer forwards requests unedited.

Our hooks' edits of a sandbox count only if the runtime takes the resctrl class from there, or sizes the sandbox by its
resources. Otherwise ``advice`` tells our own proxy that no pod need wait for the answer; Koordinator's ignores it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from koord.model.locations import HOOK_SERVER_FILE_NAME
from qosd.hooks import resctrl
from qosd.model.pod import HookStage
from qosd.model.policy import EffectivePolicy

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SandboxAdvice:
    """The sandboxes that wait for the answer: all, or those with one of ``awaited_handlers``."""

    sandboxes: bool
    awaited_handlers: frozenset[str]

    @classmethod
    def by(cls, policy: EffectivePolicy) -> SandboxAdvice:
        annotates = policy.enabled("resctrl") and policy.gate(resctrl.GATE).is_on and policy.node.rdt_verified
        return cls(not annotates, policy.node.sandbox_sizing_handlers)


def content(socket: Path, failure_policy: str, stages: Sequence[str], advice: SandboxAdvice) -> str:
    """Returns the file's JSON; ``failure_policy``: Fail or Ignore; ``stages``: names like ``PreCreateContainer``."""
    entry = {"remote-endpoint": str(socket), "failure-policy": failure_policy, "runtime-hooks": list(stages)}
    if advice.sandboxes:
        entry["advice"] = [HookStage.RUN_SANDBOX.value]
        entry["await-handlers"] = sorted(advice.awaited_handlers)
    return json.dumps(entry, indent=2) + "\n"


class Registration:
    """The file in ``directory``, in step with the policy; if it is removed, it stays away until the policy changes."""

    def __init__(self, directory: Path, socket: Path, failure_policy: str, stages: Sequence[str]) -> None:
        self._directory, self._socket = directory, socket
        self._failure_policy, self._stages = failure_policy, stages
        self._advice: SandboxAdvice | None = None

    def keep(self, policy: EffectivePolicy) -> None:
        """Writes the file if the policy changed it; if that fails, logs the error and leaves the hooks served."""
        advice = SandboxAdvice.by(policy)
        if advice == self._advice:
            return
        self._advice = advice
        try:
            file = write(self._directory, content(self._socket, self._failure_policy, self._stages, advice))
        except OSError as error:
            _log.error("%s: no runtime proxy will find the hooks: %s", error.filename, error.strerror)
            return
        _log.info("wrote %s (failure policy %s)", file, self._failure_policy)

    def remove(self) -> None:
        remove(self._directory)


def write(directory: Path, text: str) -> Path:
    """Puts ``text`` into ``directory``/koord-qosd.json atomically and durably (0644); raises OSError with the path."""
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = directory / HOOK_SERVER_FILE_NAME
    temporary = directory / f".{HOOK_SERVER_FILE_NAME}.{os.getpid()}.tmp"
    try:
        with temporary.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def remove(directory: Path) -> None:
    """Takes the file away, if it is there."""
    (directory / HOOK_SERVER_FILE_NAME).unlink(missing_ok=True)
