"""A terminal for a program that draws all of it: keys without Enter, a screen of its own, and the size as it is.

Invariant: however the block ends, by an error, SIGTERM or SIGHUP, the terminal is afterwards as it was before.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import termios
import tty
from collections.abc import Iterator
from types import FrameType

from koordctl.views.frame import Line

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[2J", "\x1b[0m\x1b[?25h\x1b[?1049l"
_ENDS = (signal.SIGTERM, signal.SIGHUP)
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "interrupt",
    " ": "space",
}
_KEY = re.compile(r"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)


class Ended(Exception):
    """The program is to end: SIGTERM or SIGHUP came."""


class Terminal:
    """The open terminal of ``opened``."""

    def __init__(self, keys: int, screen: int, colors: bool) -> None:
        self._keys, self._screen, self._colors = keys, screen, colors
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)
        self._shown: list[str] = []
        self._size = (0, 0)

    @property
    def size(self) -> tuple[int, int]:
        """Returns columns and lines."""
        columns, lines = os.get_terminal_size(self._screen)
        return columns, lines

    def wake(self) -> None:
        """Makes ``wait`` return; may be called from any thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def wait(self, timeout_s: float) -> list[str]:
        """Returns the keys that are pressed: characters, or names such as "up". Returns none after ``timeout_s``,
        ``wake``, or a change of the size."""
        readable, _, _ = select.select((self._keys, self._woken), (), (), max(0.0, timeout_s))
        if self._woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, 4096)
        if self._keys not in readable:
            return []
        typed = os.read(self._keys, 1024)
        if not typed:
            raise Ended
        return [_NAMES.get(key, key) for key in _KEY.findall(typed.decode(errors="replace"))]

    def show(self, lines: list[Line]) -> None:
        """Draws the lines that are not there yet; all of them after the size has changed."""
        made = [self._text(line) for line in lines]
        if self.size != self._size:
            self._size, self._shown = self.size, []
        changed = [(row, text) for row, text in enumerate(made) if self._shown[row : row + 1] != [text]]
        self._write("".join(f"\x1b[{row + 1};1H\x1b[0m\x1b[2K{text}" for row, text in changed))
        self._shown = made

    def enter(self) -> None:
        self._write(_ENTER)

    def leave(self) -> None:
        self._write(_LEAVE)
        for descriptor in (self._woken, self._wake):
            os.close(descriptor)

    def _text(self, line: Line) -> str:
        if not self._colors:
            return "".join(span.text for span in line)
        return "".join(f"\x1b[0;{span.style}m{span.text}" if span.style else f"\x1b[0m{span.text}" for span in line)

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._screen, data) :]


@contextlib.contextmanager
def opened(keys: int, screen: int, colors: bool = True) -> Iterator[Terminal]:
    """Yields the terminal; ``keys`` and ``screen`` are its descriptors. Raises Ended in the block to end it."""
    before = termios.tcgetattr(keys)
    terminal = Terminal(keys, screen, colors)
    handlers = {number: signal.signal(number, _end) for number in _ENDS}
    handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda number, frame: terminal.wake())
    try:
        tty.setraw(keys)
        terminal.enter()
        yield terminal
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        terminal.leave()
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def _end(number: int, frame: FrameType | None) -> None:
    raise Ended
