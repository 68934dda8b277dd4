"""A guide as a program: the fenced blocks of a Markdown document, in their order.

A block ``shell`` holds commands, ``yaml NAME`` a file that the reader makes, ``yaml`` an excerpt or an object without a
file name, ``text`` what the command before it prints, and ``text varies`` the same where each cluster has other
numbers. Everything else is prose. Invariant: a block of another language, or one that is not closed, raises ValueError
with its line, so that nothing is skipped unseen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FENCE = "```"
SHELL, YAML, TEXT = "shell", "yaml", "text"


@dataclass(frozen=True, slots=True)
class Block:
    """``name``: what follows the language; ``line``: of its first fence, from 1 on."""

    language: str
    name: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command, with what the guide shows of its output (None: it shows none), which ``varies`` in its numbers or
    not."""

    text: str
    output: str | None = None
    varies: bool = False
    line: int = 0


@dataclass(frozen=True, slots=True)
class File:
    """What the reader writes to ``name``."""

    name: str
    text: str


Step = Command | File


def blocks(document: str) -> Iterator[Block]:
    start, language, name, lines = 0, "", "", list[str]()
    for number, line in enumerate(document.splitlines(), 1):
        if not line.startswith(FENCE):
            lines.append(line)
        elif start:
            yield Block(language, name, "".join(f"{each}\n" for each in lines), start)
            start = 0
        else:
            language, _, name = line.removeprefix(FENCE).partition(" ")
            start, lines = number, []
            if language not in (SHELL, YAML, TEXT):
                raise ValueError(f"line {number}: a block of {language!r}, not one of {SHELL}, {YAML}, {TEXT}")
    if start:
        raise ValueError(f"line {start}: a block that is not closed")


def steps(document: str) -> Iterator[Step]:
    """What the reader does. A ``text`` block belongs to the last command before it."""
    pending: Command | None = None
    for block in blocks(document):
        if block.language == TEXT:
            if pending is None:
                raise ValueError(f"line {block.line}: an output without a command before it")
            yield Command(pending.text, block.text, block.name == "varies", pending.line)
            pending = None
            continue
        if pending is not None:
            yield pending
            pending = None
        if block.language == YAML and block.name:
            yield File(block.name, block.text)
        elif block.language == SHELL:
            *first, last = commands(block.text)
            yield from (Command(text, line=block.line) for text in first)
            pending = Command(last, line=block.line)
    if pending is not None:
        yield pending


def commands(text: str) -> list[str]:
    """The commands of a shell block: a line each, unless a backslash continues it; comments are none."""
    joined = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in joined if line.strip() and not line.lstrip().startswith("#")]


def objects(document: str) -> dict[str, str]:
    """Kubernetes objects of the guide by their names, whether they have a file name or not."""
    found = {}
    for block in blocks(document):
        if block.language == YAML and "\nkind:" in f"\n{block.text}":
            name = next(line.split()[1] for line in block.text.splitlines() if line.startswith("  name:"))
            found[name] = block.text
    return found
