"""A narrow HPACK decoder (RFC 7541): keeps the table in step with the two real ends, yields only what is asked for.

The relay needs two or three header fields per block and three blocks per call; a general decoder costs more than
the rest of the relay. So strings that nobody wants are measured, not kept, and a block that left the table as it
was is remembered whole.

Invariant: after each `decode` the dynamic table has the entries and the size that the peer's encoder has. When a
block is malformed (`HpackError`) that no longer holds, and the decoder must not be used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from koord.http2.huffman import HuffmanError, huffman_decode

DEFAULT_TABLE_BYTES = 4096
MAX_TABLE_BYTES = 1 << 20
_ENTRY_OVERHEAD_BYTES = 32  # RFC 7541 §4.1
_CACHED_BLOCKS = 64
_CACHED_BLOCK_BYTES = 512
_MAX_INTEGER = (1 << 32) - 1

STATIC_TABLE: tuple[tuple[bytes, bytes], ...] = tuple(
    (name.encode(), value.encode())
    for name, _, value in (
        line.partition(" ")
        for line in (
            ":authority",
            ":method GET",
            ":method POST",
            ":path /",
            ":path /index.html",
            ":scheme http",
            ":scheme https",
            ":status 200",
            ":status 204",
            ":status 206",
            ":status 304",
            ":status 400",
            ":status 404",
            ":status 500",
            "accept-charset",
            "accept-encoding gzip, deflate",
            "accept-language",
            "accept-ranges",
            "accept",
            "access-control-allow-origin",
            "age",
            "allow",
            "authorization",
            "cache-control",
            "content-disposition",
            "content-encoding",
            "content-language",
            "content-length",
            "content-location",
            "content-range",
            "content-type",
            "cookie",
            "date",
            "etag",
            "expect",
            "expires",
            "from",
            "host",
            "if-match",
            "if-modified-since",
            "if-none-match",
            "if-range",
            "if-unmodified-since",
            "last-modified",
            "link",
            "location",
            "max-forwards",
            "proxy-authenticate",
            "proxy-authorization",
            "range",
            "referer",
            "refresh",
            "retry-after",
            "server",
            "set-cookie",
            "strict-transport-security",
            "transfer-encoding",
            "user-agent",
            "vary",
            "via",
            "www-authenticate",
        )
    )
)
_STATIC = len(STATIC_TABLE)

_Entry = tuple[bytes, bytes, bool, int]  # name, value, is it wanted, size as RFC 7541 §4.1 counts it


class HpackError(Exception):
    """A header block that does not decode; the connection's table is lost with it."""


class HeaderDecoder:
    """One direction of one connection.

    ``wanted``: lower-case names whose values `decode` returns; None = all. A name that occurs twice yields its
    last value.
    """

    def __init__(self, names: Collection[bytes] | None = None) -> None:
        self._wanted = None if names is None else frozenset(names)
        self._static: tuple[_Entry, ...] = tuple(self._entry(name, value) for name, value in STATIC_TABLE)
        self._table: deque[_Entry] = deque()
        self._size_bytes = 0
        self._limit_bytes = DEFAULT_TABLE_BYTES  # what the encoder last chose
        self._ceiling_bytes = DEFAULT_TABLE_BYTES  # what it may choose
        self._due_bytes = MAX_TABLE_BYTES  # the smallest size acknowledged since the last block
        self._cache: dict[bytes, Mapping[bytes, bytes]] = {}

    @property
    def table(self) -> list[tuple[bytes, bytes]]:
        """The dynamic table, newest first (for tests)."""
        return [(name, value) for name, value, _, _ in self._table]

    def allow_table_bytes(self, size_bytes: int) -> None:
        """The decoding peer announced SETTINGS_HEADER_TABLE_SIZE.

        A smaller value counts only once the encoder has acted on it, so the ceiling never falls.
        """
        self._ceiling_bytes = max(self._ceiling_bytes, min(size_bytes, MAX_TABLE_BYTES))

    def acknowledged_table_bytes(self, size_bytes: int) -> None:
        """The encoding peer has acknowledged a SETTINGS_HEADER_TABLE_SIZE: its next block must keep to it."""
        self._due_bytes = min(self._due_bytes, size_bytes)
        self._cache.clear()  # so that the next block, which is what was due, goes through `_decode`

    def size_update(self) -> bytes:
        """What a block must begin with that is put in before the encoder's next one (RFC 7541 §4.2); mostly empty.

        The decoding peer's table shrinks by it, and so does ours; the encoder's own has shrunk already.
        """
        size_bytes = self._due_bytes
        self._due_bytes = MAX_TABLE_BYTES
        if size_bytes >= self._limit_bytes:
            return b""
        self._resize(size_bytes)
        return table_size_update(size_bytes)

    def decode(self, block: bytes) -> Mapping[bytes, bytes]:
        """Decode one whole header block into {wanted name: value}. Raises HpackError."""
        known = self._cache.get(block)
        if known is not None:
            return known
        try:
            found, pure = self._decode(block)
        except IndexError:
            raise HpackError(f"header block of {len(block)} bytes is truncated or names an absent entry") from None
        except HuffmanError as error:
            raise HpackError(str(error)) from None
        if pure:
            if len(block) <= _CACHED_BLOCK_BYTES and len(self._cache) < _CACHED_BLOCKS:
                self._cache[block] = found
        elif self._cache:
            self._cache.clear()
        return found

    def _decode(self, block: bytes) -> tuple[dict[bytes, bytes], bool]:
        found: dict[bytes, bytes] = {}
        pure = True
        self._due_bytes = MAX_TABLE_BYTES
        position, end = 0, len(block)
        table, static = self._table, self._static
        while position < end:
            first = block[position]
            position += 1
            if first >= 0x80:  # indexed field
                index = first & 0x7F
                if index == 0x7F:
                    index, position = _integer(block, position, 0x7F)
                entry = table[index - _STATIC - 1] if index > _STATIC else static[index - 1] if index else _absent()
                if entry[2]:
                    found[entry[0]] = entry[1]
            elif first >= 0x40:  # literal, added to the table
                pure = False
                entry, position = self._literal(block, position, first & 0x3F, 0x3F)
                table.appendleft(entry)
                self._size_bytes += entry[3]
                if self._size_bytes > self._limit_bytes:
                    self._evict()
                if entry[2]:
                    found[entry[0]] = entry[1]
            elif first >= 0x20:  # table size update
                pure = False
                size, position = (first & 0x1F, position) if first & 0x1F != 0x1F else _integer(block, position, 0x1F)
                self._resize(size)
            else:  # literal, not added (0x10: never to be)
                entry, position = self._literal(block, position, first & 0x0F, 0x0F)
                if entry[2]:
                    found[entry[0]] = entry[1]
        return found, pure

    def _literal(self, block: bytes, position: int, index: int, mask: int) -> tuple[_Entry, int]:
        if index == mask:
            index, position = _integer(block, position, mask)
        if index == 0:
            name, position = _string(block, position)
        elif index <= _STATIC:
            name = self._static[index - 1][0]
        else:
            name = self._table[index - _STATIC - 1][0]
        first = block[position]
        end = position + 1 + (first & 0x7F)
        if first & 0x7F == 0x7F or end > len(block):
            value, end = _string(block, position)
        else:
            value = block[position + 1 : end]
            if first >= 0x80:
                value = huffman_decode(value)
        wanted = self._wanted is None or name in self._wanted
        return (name, value, wanted, len(name) + len(value) + 32), end

    def _entry(self, name: bytes, value: bytes) -> _Entry:
        wanted = self._wanted is None or name in self._wanted
        return name, value, wanted, len(name) + len(value) + _ENTRY_OVERHEAD_BYTES

    def _resize(self, limit_bytes: int) -> None:
        if limit_bytes > self._ceiling_bytes:
            raise HpackError(f"table size update to {limit_bytes} bytes, at most {self._ceiling_bytes} are allowed")
        self._limit_bytes = limit_bytes
        self._evict()

    def _evict(self) -> None:
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= self._table.pop()[3]


def _absent() -> _Entry:
    raise IndexError


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """The rest of a prefixed integer (RFC 7541 §5.1) whose prefix was full: ``value`` is the prefix."""
    shift = 0
    while True:
        octet = block[position]
        position += 1
        value += (octet & 0x7F) << shift
        if octet < 0x80:
            return value, position
        shift += 7
        if value > _MAX_INTEGER or shift > 28:
            raise HpackError("an integer of a header block exceeds 32 bits")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    first = block[position]
    position += 1
    length = first & 0x7F
    if length == 0x7F:
        length, position = _integer(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise IndexError
    raw = block[position:end]
    return (huffman_decode(raw) if first >= 0x80 else raw), end


def table_size_update(size_bytes: int) -> bytes:
    """The instruction that sets the size of the dynamic table; only at the beginning of a block."""
    return _prefixed(0x20, 0x1F, size_bytes)


def literal(name: bytes, value: bytes) -> bytes:
    """Encode one field as a never-indexed literal, which leaves the peer's table alone."""
    return b"\x10" + _plain(name) + _plain(value)


def _plain(text: bytes) -> bytes:
    return _prefixed(0, 0x7F, len(text)) + text


def _prefixed(first: int, mask: int, value: int) -> bytes:
    """An integer as RFC 7541 §5.1 encodes it, in the bits of ``mask`` and in octets of their own if need be."""
    if value < mask:
        return bytes((first | value,))
    rest, octets = value - mask, bytearray((first | mask,))
    while rest >= 0x80:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    octets.append(rest)
    return bytes(octets)


NO_TABLE = table_size_update(0)
"""The beginning of the first block of an encoder that uses no table: nothing that its peer announces is ever due."""
