"""Runs a program on a terminal of its own, reads what its screen shows, and draws that screen as an SVG.

The documentation's pictures are made by it from what programs really print, and the tests of programs that draw a
screen read the screen by it. It knows what such programs here use: positions, erasing, colours, the alternate screen.

Invariant: ``Screen.unknown`` keeps each control sequence that is not known, so that a wrong screen is not trusted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from itertools import groupby

_SEQUENCE = re.compile(r"\x1b\[([?]?)([0-9;]*)([A-Za-z])")
_MODES = ("1049", "25")
_COLORS = {31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 36: "#56b6c2"}
_TEXT, _DIM, _GROUND = "#d7dae0", "#7f848e", "#1e2127"
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_CELL_WIDTH, _CELL_HEIGHT, _SIZE, _MARGIN = 8.4, 18, 14, 12


@dataclass(frozen=True, slots=True)
class Style:
    """``color``: an SGR number from 30 to 37; 0: the terminal's own."""

    color: int = 0
    bold: bool = False
    dim: bool = False
    reverse: bool = False


PLAIN = Style()


@dataclass(slots=True)
class Screen:
    """The picture that a terminal of this size shows. ``is_alternate``: a program draws all of it."""

    columns: int
    rows: int
    cells: list[list[tuple[str, Style]]] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    is_alternate: bool = False
    is_cursor_shown: bool = True
    _row: int = 0
    _column: int = 0
    _style: Style = PLAIN

    def __post_init__(self) -> None:
        if not self.cells:
            self._erase()

    @property
    def text(self) -> str:
        """Returns the lines without blanks at their ends."""
        return "\n".join("".join(character for character, _ in line).rstrip() for line in self.cells)

    def resize(self, columns: int, rows: int) -> None:
        """Empties the screen: a program that draws all of it draws again."""
        self.columns, self.rows = columns, rows
        self._erase()

    def feed(self, text: str) -> str:
        """Shows ``text``; returns the begin of a sequence at its end, which is to come again with the rest."""
        position = 0
        while position < len(text):
            character = text[position]
            if character != "\x1b":
                self._put(character)
                position += 1
            elif found := _SEQUENCE.match(text, position):
                self._control(found[1], found[2], found[3])
                position = found.end()
            elif len(text) - position < 32:
                return text[position:]
            else:
                self.unknown.append(text[position : position + 8])
                position += 1
        return ""

    def _erase(self) -> None:
        self.cells = [[(" ", PLAIN)] * self.columns for _ in range(self.rows)]

    def _put(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row = min(self._row + 1, self.rows - 1)
        elif self._column < self.columns:
            self.cells[self._row][self._column] = (character, self._style)
            self._column += 1

    def _control(self, mark: str, parameters: str, command: str) -> None:
        match mark, command:
            case "", "H":
                row, _, column = (parameters or "1;1").partition(";")
                self._row, self._column = int(row) - 1, int(column or 1) - 1
            case "", "K" if parameters == "2":
                self.cells[self._row] = [(" ", PLAIN)] * self.columns
            case "", "J" if parameters == "2":
                self._erase()
            case "", "m":
                for number in parameters.split(";"):
                    self._style = _styled(self._style, int(number or 0), self.unknown)
            case "?", ("h" | "l") if parameters in _MODES:
                if parameters == "25":
                    self.is_cursor_shown = command == "h"
                else:
                    self.is_alternate = command == "h"
            case _:
                self.unknown.append(f"{mark}{parameters}{command}")


def _styled(style: Style, number: int, unknown: list[str]) -> Style:
    match number:
        case 0:
            return PLAIN
        case 1:
            return replace(style, bold=True)
        case 2:
            return replace(style, dim=True)
        case 7:
            return replace(style, reverse=True)
        case _ if 30 <= number <= 37:
            return replace(style, color=number)
        case _:
            unknown.append(f"{number}m")
            return style


class Session:
    """A program that runs on a terminal: ``screen`` is what that shows."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, screen: Screen) -> None:
        self.process, self._master, self.screen = process, master, screen
        self._rest, self._bytes = "", b""
        self.received = 0

    def send(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(columns, rows)
        _set_size(self._master, columns, rows)

    def wait(self, condition: Callable[[Screen], object], within_s: float = 30.0) -> Screen:
        """The screen once it is so. Raises TimeoutError, with what it shows."""
        end_s = time.monotonic() + within_s
        while not condition(self.screen):
            if time.monotonic() > end_s or not self.read(end_s - time.monotonic()):
                raise TimeoutError(f"the screen never became so:\n{self.screen.text}")
        return self.screen

    def read(self, within_s: float) -> bool:
        """Takes what the program prints within this time; False if its terminal was closed."""
        end_s = time.monotonic() + within_s
        if not select.select((self._master,), (), (), max(0.0, end_s - time.monotonic()))[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # EIO: the other end is closed
            return False
        self.received += len(data)
        self._bytes += data
        text = self._bytes.decode(errors="ignore")
        self._bytes = b"" if text.encode() == self._bytes else self._bytes[len(text.encode()) :]
        self._rest = self.screen.feed(self._rest + text)
        return bool(data)

    def end(self, within_s: float = 30.0) -> int:
        """The exit code of the program, after all that it printed."""
        end_s = time.monotonic() + within_s
        while self.process.poll() is None and time.monotonic() < end_s:
            self.read(0.05)
        while select.select((self._master,), (), (), 0)[0] and self.read(0):
            pass
        return self.process.wait(max(0.1, end_s - time.monotonic()))


@contextlib.contextmanager
def running(
    command: Sequence[str], columns: int = 80, rows: int = 24, environment: Mapping[str, str] | None = None
) -> Iterator[Session]:
    """``command`` on a terminal of this size; it is killed at the end if it still runs."""
    master, slave = pty.openpty()
    _set_size(slave, columns, rows)
    environ = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})}
    # of its session: so it is told of its size
    process = subprocess.Popen(["setsid", "--ctty", *command], stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    try:
        yield Session(process, master, Screen(columns, rows))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(master)


def _set_size(descriptor: int, columns: int, rows: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def svg(screen: Screen, title: str) -> str:
    """The screen as a picture; its text stays text. ``title``: what it shows, for those who cannot see it."""
    width = screen.columns * _CELL_WIDTH + 2 * _MARGIN
    height = screen.rows * _CELL_HEIGHT + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{_GROUND}"/>',
        f'<g font-family="{_FONT}" font-size="{_SIZE}" xml:space="preserve" style="white-space: pre">',
    ]
    for row, cells in enumerate(screen.cells):
        lines += _svg_line(row, cells)
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _svg_line(row: int, cells: Sequence[tuple[str, Style]]) -> Iterator[str]:
    column, top = 0, _MARGIN + row * _CELL_HEIGHT
    for style, run in groupby(cells, key=lambda cell: cell[1]):
        text = "".join(character for character, _ in run)
        left, width = _MARGIN + column * _CELL_WIDTH, len(text) * _CELL_WIDTH
        column += len(text)
        ink = _COLORS.get(style.color, _DIM if style.dim else _TEXT)
        if style.reverse:
            yield f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{_CELL_HEIGHT}" fill="{ink}"/>'
            ink = _GROUND
        if text.strip():
            weight = ' font-weight="bold"' if style.bold else ""
            place = f'x="{left:g}" y="{top + _SIZE:g}" textLength="{width:g}" lengthAdjust="spacingAndGlyphs"'
            yield f'<text {place} fill="{ink}"{weight}>{escape(text)}</text>'
