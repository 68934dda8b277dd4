"""HPACK's Huffman code (RFC 7541 Appendix B), decoded a byte at a time.

The code is canonical, so its 257 lengths are all the table there is; the automaton over whole bytes is filled in
as strings are seen (building all of it would cost more than a process start may). Malformed input raises
HuffmanError.
"""

from __future__ import annotations

from functools import lru_cache

# The length in bits of the code of symbol 0, 1, … 255 and of the end-of-string symbol, one base-36 digit each.
_LENGTHS = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6ca"
    "d67777777777777777777777878djde6f56565666577666567655677777fbeds"
    "kmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmn"
    "qqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrq"
    "u"
)
_END_OF_STRING = 256
_MAX_PADDING_BITS = 7


class HuffmanError(Exception):
    """A string that is not in HPACK's Huffman code."""


class _Tree:
    """The code as a binary tree: ``children[node][bit]`` > 0 is a node, < 0 the symbol -(n + 1)."""

    def __init__(self) -> None:
        self.children: list[list[int]] = [[0, 0]]
        code, previous = 0, 0
        for length, symbol in sorted((int(digit, 36), symbol) for symbol, digit in enumerate(_LENGTHS)):
            code <<= length - previous
            previous = length
            self._add(code, length, symbol)
            code += 1
        self.final = {0}  # nodes where a string may end: at the root, or after a few padding ones
        node = 0
        for _ in range(_MAX_PADDING_BITS):
            node = self.children[node][1]
            self.final.add(node)

    def _add(self, code: int, length: int, symbol: int) -> None:
        node = 0
        for shift in range(length - 1, 0, -1):
            bit = code >> shift & 1
            if not self.children[node][bit]:
                self.children.append([0, 0])
                self.children[node][bit] = len(self.children) - 1
            node = self.children[node][bit]
        self.children[node][code & 1] = -(symbol + 1)


class _Steps(dict[int, tuple[int, bytes]]):
    """``node << 8 | octet`` → (next node, symbols completed on the way); worked out when first asked for."""

    def __init__(self, tree: _Tree) -> None:
        super().__init__()
        self._children = tree.children

    def __missing__(self, key: int) -> tuple[int, bytes]:
        node, emitted = key >> 8, bytearray()
        for shift in range(7, -1, -1):
            node = self._children[node][key >> shift & 1]
            if node < 0:
                symbol = -node - 1
                if symbol == _END_OF_STRING:
                    raise HuffmanError("the end-of-string symbol inside a Huffman string")
                emitted.append(symbol)
                node = 0
        step = self[key] = node, bytes(emitted)
        return step


@lru_cache(maxsize=1)
def _automaton() -> tuple[_Steps, set[int]]:
    tree = _Tree()
    return _Steps(tree), tree.final


def huffman_decode(raw: bytes) -> bytes:
    """The text of a Huffman-coded string. Raises HuffmanError."""
    steps, final = _automaton()
    node = 0
    text = bytearray()
    for octet in raw:
        node, emitted = steps[node << 8 | octet]
        text += emitted
    if node not in final:
        raise HuffmanError("a Huffman string that ends inside a symbol")
    return bytes(text)
