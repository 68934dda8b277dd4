"""The body of a list, read as it comes: no more than a few items of its text is in memory at a time.

A list of 100,000 pods has 700 MB in one body where it comes from a server's cache. Items are taken out at separators,
which are the bytes with which each item begins: ``,{"metadata":{`` of most kinds, as API servers write them. Bytes
between two separators that are one JSON value are an item, since no proper beginning of an object is a value; where
they are none, the separator was within an item, and the next one is tried.

Invariant: what is taken out and what is left make the same list, so a body in which no separator is found, or one too
often within an item, is read as a whole at its end. Fails with ValueError where the body is no list.
"""

from __future__ import annotations

from typing import Generic

import msgspec

from koord.kube.kind import Kind, T
from koord.kube.reading import Kept, ListPage, ObjectEntry, Transform, read_entry, read_page

_ITEMS, _METADATA = b'"items":[', b'"metadata":{'
_HEAD_BYTES = 4096
"""In which a list's items begin, and an item's metadata."""

_MAX_FALSE_SEPARATORS = 16
"""In one item; a body with more of them is read at its end."""

SMALL_BYTES = 64 << 10
"""A body that has no more is read at its end."""


class ListBody(Generic[T, Kept]):
    """``transform`` has each entry in order, before the next one is read; ``end`` returns what it made of them."""

    def __init__(self, kind: Kind[T], transform: Transform[T, Kept], small_bytes: int = SMALL_BYTES) -> None:
        self._kind, self._transform, self._small_bytes = kind, transform, small_bytes
        self._entries: list[ObjectEntry[Kept]] = []
        self._head, self._rest = b"", bytearray()
        self._separator: bytes | None = None
        """None: not looked for yet; b"": there is none, or none of use."""
        self._searched = 0
        self._false_separators = 0

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes of the body, and every item that is whole with them."""
        self._rest += chunk
        if self._separator is None and len(self._rest) > self._small_bytes:
            self._find_separator()
        if self._separator:
            self._take_items(self._separator)

    def end(self) -> ListPage[Kept]:
        """Returns the list, once all its bytes are fed. Raises ValueError."""
        left = read_page(self._kind, self._head + self._rest, self._transform)
        return ListPage((*self._entries, *left.entries), left.resource_version, left.continue_token)

    def _find_separator(self) -> None:
        first = self._rest.find(_ITEMS, 0, _HEAD_BYTES) + len(_ITEMS)
        end = self._rest.find(_METADATA, first, first + _HEAD_BYTES) + len(_METADATA)
        self._separator = b""
        if first >= len(_ITEMS) and end >= len(_METADATA) and self._rest[first : first + 1] == b"{":
            self._separator = b"," + self._rest[first:end]
            self._head = bytes(self._rest[:first])
            del self._rest[:first]

    def _take_items(self, separator: bytes) -> None:
        begin = 0
        end = self._rest.find(separator, max(1, self._searched))
        while end >= 0:
            entry = self._read(self._rest[begin:end])
            if entry is not None:
                self._false_separators = 0
                kept = self._transform(entry)
                if kept is not None:
                    self._entries.append(kept)
                begin = end + 1
            elif self._false_separators >= _MAX_FALSE_SEPARATORS:
                self._separator = b""
                break
            else:
                self._false_separators += 1
            end = self._rest.find(separator, end + 1)
        del self._rest[:begin]
        self._searched = max(1, len(self._rest) - len(separator) + 1)

    def _read(self, document: bytearray) -> ObjectEntry[T] | None:
        """Returns the item that ``document`` is, or None if it is only the beginning of one."""
        entry = read_entry(self._kind, document)
        if entry.object is None:
            try:
                msgspec.json.decode(document, type=msgspec.Raw)
            except (msgspec.DecodeError, RecursionError):
                return None
        return entry
