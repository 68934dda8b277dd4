"""Walks through a guide as a reader does: writes its files, runs its commands, looks at what they print.

A command that only looks, and whose output is known from the guide or from a check, is repeated until it prints that,
as a reader does who waits for pods. Invariant: nothing of a guide is left out or changed except by a ``Substitution``,
each of which must have been of use at the end. A command that fails, or never prints what it should, raises WalkError
with what it printed.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from integration.cluster.quickstart import guide
from integration.cluster.quickstart.guide import Command, File

COMMAND_S = 150.0
PAUSE_S = 0.5
LOOKS = ("kubectl get ", "kubectl logs ", "kubectl describe ", "kubectl top ", "koordctl ", "cat ")
# What is another each time: the ends of pods' names (Kubernetes' alphabet for them has no vowels), ages.
_ENDS = re.compile(r"(-[0-9a-f]{8,10})?-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_AGE = re.compile(r"\b(\d+[dhms]){1,2}\b")
# A quantity may have a suffix or none from one look to the next: 9760 and 8k are both thousandths of a CPU.
_NUMBER = re.compile(r"\bAGE\b|\d+(\.\d+)?(([numkMGTPE]|[KMGTPE]i)\b)?")

Check = Callable[[str], bool]


class WalkError(AssertionError):
    """The guide does not do what it says."""


@dataclass(frozen=True, slots=True)
class Substitution:
    """In place of a guide's ``command`` run ``by``, because of ``why``."""

    command: str
    by: tuple[str, ...]
    why: str


@dataclass
class Walk:
    """``checks``: what the output of a command has to show, by the command's text."""

    directory: Path
    environment: Mapping[str, str]
    substitutions: Sequence[Substitution] = ()
    checks: Mapping[str, Check] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    printed: list[tuple[Command, str]] = field(default_factory=list)

    def through(self, document: str) -> None:
        """Do everything that ``document`` says, in its order."""
        for step in guide.steps(document):
            if isinstance(step, File):
                (self.directory / step.name).write_text(step.text)
            else:
                self.do(step)

    def do(self, command: Command) -> str:
        """Run a command of the guide, or what is put in its place; returns the last output."""
        output, expected = "", self._expected(command)
        texts = self._instead(command.text)
        for number, text in enumerate(texts, 1):
            output = self._until(text, expected if number == len(texts) else None)
        self.printed.append((command, output))
        return output

    def unused(self) -> set[str]:
        """Substitutions and checks of commands that no guide had."""
        return {*(each.command for each in self.substitutions), *self.checks} - self.used

    def _instead(self, text: str) -> tuple[str, ...]:
        for each in self.substitutions:
            if each.command == text:
                self.used.add(text)
                return each.by
        return (text,)

    def _expected(self, command: Command) -> Check | None:
        if command.text in self.checks:
            self.used.add(command.text)
            return self.checks[command.text]
        if command.output is not None:
            wanted = shape(command.output, command.varies)
            return lambda output: shape(output, command.varies) == wanted
        return None

    def _until(self, text: str, expected: Check | None) -> str:
        end = time.monotonic() + COMMAND_S
        while True:
            done = subprocess.run(
                ["bash", "-c", text], cwd=self.directory, env=dict(self.environment), check=False,
                capture_output=True, text=True, timeout=COMMAND_S,
            )  # fmt: skip
            failed = done.returncode != 0
            if not failed and (expected is None or expected(done.stdout)):
                return done.stdout
            if expected is None or not text.startswith(LOOKS) or time.monotonic() > end:
                raise WalkError(f"$ {text}\n{done.stdout}{done.stderr}(status {done.returncode})")
            time.sleep(PAUSE_S)


def shape(output: str, varies: bool) -> list[str]:
    """The lines without what is another each time: the ends of pods' names and ages, or (``varies``) all numbers
    and quantities."""
    text = _AGE.sub("AGE", _ENDS.sub("-END", output))
    if varies:
        text = _NUMBER.sub("N", text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def with_outputs(document: str, printed: Sequence[tuple[Command, str]]) -> str:
    """``document`` with what its commands printed this time in the place of its ``text`` blocks."""
    lines = document.splitlines(keepends=True)
    shown = {command.line: output for command, output in printed if command.output is not None}
    for block in reversed(list(guide.blocks(document))):
        before = [line for line in shown if line < block.line]
        if block.language == guide.TEXT and before:
            lines[block.line : block.line + block.text.count("\n")] = shown[max(before)].splitlines(keepends=True)
    return "".join(lines)


def transcript(printed: Sequence[tuple[Command, str]]) -> str:
    return "\n".join(f"$ {command.text}\n{output.rstrip()}" for command, output in printed)
