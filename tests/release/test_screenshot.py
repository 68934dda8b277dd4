"""A terminal's screen as it is fed, and as a picture."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

from release.screenshot import Screen, Style, running, svg


def fed(*parts: str, columns: int = 10, rows: int = 3) -> Screen:
    screen, rest = Screen(columns, rows), ""
    for part in parts:
        rest = screen.feed(rest + part)
    assert rest == ""
    return screen


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (["abc"], "abc\n\n"),
        (["a\r\nb"], "a\nb\n"),
        (["\x1b[2;3Hx"], "\n  x\n"),
        (["\x1b[2;3", "Hx"], "\n  x\n"),
        (["abc\x1b[1;1H\x1b[2Kd"], "d\n\n"),
        (["abc\x1b[2J"], "\n\n"),
        (["0123456789ABC"], "0123456789\n\n"),
        (["\x1b[?1049h\x1b[?25l\x1b[2Ja"], "a\n\n"),
    ],
)
def test_what_is_shown(parts: list[str], text: str) -> None:
    screen = fed(*parts)
    assert (screen.text, screen.unknown) == (text, [])


def test_styles() -> None:
    screen = fed("\x1b[0;1ma\x1b[0;32mb\x1b[0md\x1b[7me")
    assert [style for _, style in screen.cells[0][:4]] == [
        *(Style(bold=True), Style(color=32), Style(), Style(reverse=True)),
    ]


@pytest.mark.parametrize("text", ["\x1b[3A", "\x1b[45m", "\x1b[?7h", "\x1b]0;title\x07" + "x" * 40])
def test_what_is_not_known_is_told(text: str) -> None:
    assert fed(text).unknown != []


def test_a_picture_has_the_text_in_it() -> None:
    screen = fed("\x1b[0;32m<a> & b\x1b[0m\r\n\x1b[7mhead")
    root = ElementTree.fromstring(svg(screen, "two & two"))
    name = "{http://www.w3.org/2000/svg}"
    assert [each.text for each in root.iter(f"{name}text")] == ["<a> & b", "head"]
    assert root.find(f"{name}title") is not None
    assert len(list(root.iter(f"{name}rect"))) == 2, "the ground, and what is reversed"


def test_a_program_on_a_terminal() -> None:
    code = "import os, sys; print(*os.get_terminal_size()); print(input()); sys.exit(3)"
    with running([sys.executable, "-c", code], 33, 7) as session:
        session.wait(lambda screen: "33 7" in screen.text)
        session.send("echoed\n")
        assert session.end() == 3
        assert session.screen.text.count("echoed") == 2


def test_one_that_never_becomes_so_is_given_up() -> None:
    with running(["sleep", "60"]) as session, pytest.raises(TimeoutError, match="never became so"):
        session.wait(lambda screen: "x" in screen.text, 0.2)
    assert session.process.returncode is not None
