"""How the text of one key becomes its value, and what is said of a text that is none.

A codec raises nothing. Texts that were seen lately are not decoded again: a pod says the same for each container, a
workload for each pod.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from koord.model.annotations import decode
from koord.model.problem import Bad, Problem
from koord.model.readable import shorten_list
from koord.model.schema import clip

T = TypeVar("T")

Decoded = tuple[object, tuple[str, ...]]
"""The value, None if there is none; and what is wrong."""
Codec = Callable[[str], Decoded]

_KEPT_TEXTS = 256
_KEPT_CHARS = 2048
_MOST_PROBLEMS = 8


class AnnotationKey(NamedTuple):
    """The label or annotation ``name`` and how its text is read."""

    name: str
    codec: Codec
    is_label: bool = False

    def decoded(self, text: str) -> Decoded:
        return _kept(self.codec, text) if len(text) <= _KEPT_CHARS else self.codec(text)


def label(name: str, parse: Callable[[str], object]) -> AnnotationKey:
    """A label; all of its text counts, or nothing."""
    return AnnotationKey(name, _whole(parse), is_label=True)


def annotation(name: str, parse: Callable[[str], object]) -> AnnotationKey:
    """An annotation; all of its text counts, or nothing."""
    return AnnotationKey(name, _whole(parse))


def document(name: str, parse: type[msgspec.Struct] | Callable[[str, Bad], object]) -> AnnotationKey:
    """An annotation in JSON, read as the struct ``parse`` or by that function; a bad leaf costs itself only."""
    return AnnotationKey(name, _by_leaf(functools.partial(decode.read, parse) if isinstance(parse, type) else parse))


def of_object(annotations: Mapping[str, str], key: AnnotationKey, kind: type[T], bad: Bad) -> T | None:
    """Returns the ``kind`` that ``key`` has on an object with these annotations; None without the annotation, or where
    nothing in it can be read. ``bad`` is told each thing in it that is wrong.
    """
    text = annotations.get(key.name)
    if text is None:
        return None
    value, problems = key.decoded(text)
    for problem in problems:
        bad(Problem(f"annotation {key.name}", f"{clip(text, 60)}: {problem}"))
    return value if isinstance(value, kind) else None


@functools.lru_cache(_KEPT_TEXTS)
def _kept(codec: Codec, text: str) -> Decoded:
    return codec(text)


def _whole(parse: Callable[[str], object]) -> Codec:
    """Makes a codec by which all of the text counts, or nothing."""

    def codec(text: str) -> Decoded:
        try:
            return parse(text), ()
        except decode.BadValue as error:
            return None, (str(error),)

    return codec


def _by_leaf(parse: Callable[[str, Bad], object]) -> Codec:
    """Makes a codec by which what is good counts; a document of which nothing is left does not."""

    def codec(text: str) -> Decoded:
        wrong: list[Problem] = []
        try:
            value = parse(text, wrong.append)
        except decode.BadValue as error:
            return None, (str(error),)
        is_empty = bool(wrong) and value == type(value)()
        return None if is_empty else value, shorten_list([str(each) for each in wrong], _MOST_PROBLEMS)

    return codec
