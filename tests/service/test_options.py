"""What every program gets of its dataclass, in both styles; each program's own table is tested with the program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from koord.service.options import CommandLine, OptionError, Program, Style, option
from koord.service.optionvalues import duration_s


@dataclass(frozen=True, slots=True)
class Options:
    endpoint: Path = option(Path("/run/x.sock"), "where")
    mode: str = option("a", "how", choices=("a", "b"), live=True)
    rows: int = option(5, "how many", bounds=(lambda rows: rows > 0, "must be more than 0"), metavar="ROWS")
    ratio: float = option(0.5, "what part", live=True)
    dry_run: bool = option(False, "do nothing")
    wait_s: float = option("2s", "how long", parse=duration_s, flag="wait", live=True)


def program(style: Style) -> Program[Options]:
    return Program("koord-x", "Does x.", Options, style)


@pytest.mark.parametrize(
    ("flag", "plain", "go"),
    [
        ("--mode=c", "--mode='c': must be one of a, b", "--mode='c': must be one of a, b"),
        ("--rows=0", "--rows='0': must be more than 0", "--rows='0': must be more than 0"),
        ("--rows=many", "--rows='many': is no number", "--rows='many': is no number"),
        ("--wait=2", "--wait='2': not a duration", "--wait='2': not a duration"),
        ("--dry-run=x", "ignored explicit argument 'x'", "--dry-run='x': neither true nor false"),
        ("--row=1", "unrecognized arguments: --row=1", "unrecognized arguments: --row=1; see --help"),
        ("--rows", "--rows: expected one argument", "--rows/-rows: expected one argument; see --help"),
    ],
)
def test_a_bad_flag(flag: str, plain: str, go: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program(Style.PLAIN).parse([flag])
    usage, message = capsys.readouterr().err.splitlines()
    assert (ended.value.code, usage) == (2, "usage: koord-x [--flag=value …]")
    assert message.startswith("koord-x: error: ")
    assert plain in message
    with pytest.raises(OptionError) as refused:
        program(Style.GO).parse([flag])
    assert go in str(refused.value)


@pytest.mark.parametrize(
    ("text", "plain", "go"),
    [
        ("mdoe: a", "mdoe: is no option; there are dry-run, endpoint, mode, ratio, rows, wait", "mdoe: is no option"),
        ("1: a", "1: is no option", "1: is no option"),
        ("mode: c", "mode = 'c': must be one of a, b", "mode = 'c': must be one of a, b"),
        ("rows: many", "rows = 'many': must be int", "rows = 'many': is no number"),
        ("rows: 1.5", "rows = 1.5: must be int", "rows = 1.5: is no number"),
        ("rows: true", "rows = True: must be int", "rows = True: is no number"),
        ("rows: 0", "rows = 0: must be more than 0", "rows = 0: must be more than 0"),
        (f"ratio: 1{'0' * 400}", "is no number", ""),
        ("endpoint: {}", "endpoint = {}: must be str", "endpoint = {}: must be a string, a number, a boolean or a"),
        ("dry-run: maybe", "dry-run = 'maybe': must be bool", "dry-run = 'maybe': neither true nor false"),
        ("wait: 2", "wait = 2: not a duration", "wait = 2: not a duration"),
        ("[a]", "must be a mapping", "must be a mapping"),
        ("{", "is not YAML", "is not YAML"),
        (None, "does not exist", "does not exist"),
    ],
)
def test_a_bad_file(tmp_path: Path, text: str | None, plain: str, go: str) -> None:
    file = tmp_path / "x.yaml"
    if text is not None:
        file.write_text(text)
    for style, complaint in ((Style.PLAIN, plain), (Style.GO, go)):
        if complaint:
            with pytest.raises(OptionError) as refused:
                program(style).load(CommandLine({}, str(file)))
            assert str(file) in str(refused.value)
            assert complaint in str(refused.value)


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize(
    ("flags", "text", "expected"),
    [
        ([], "", Options()),
        ([], "{rows: 7, wait: 1m, dry-run: true}", Options(rows=7, wait_s=60.0, dry_run=True)),
        (["--rows=8", "--wait", "3s"], "{rows: 7, wait: 1m}", Options(rows=8, wait_s=3.0)),
        (
            ["--endpoint=unix:///run/y.sock", "--dry-run"],
            "ratio: 1",
            Options(Path("/run/y.sock"), dry_run=True, ratio=1),
        ),
    ],
)
def test_flag_over_file_over_default(
    tmp_path: Path, style: Style, flags: list[str], text: str, expected: Options
) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    options = program(style)
    assert options.load(options.parse([f"--config={file}", *flags])) == expected


def test_the_table_is_what_people_read() -> None:
    rows = {flag: (row.default_text, row.live) for flag, row in program(Style.PLAIN).table.items()}
    assert rows == {
        "endpoint": ("/run/x.sock", False),
        "mode": ("a", True),
        "rows": ("5", False),
        "ratio": ("0.5", True),
        "dry-run": ("off", False),
        "wait": ("2s", True),
    }
    assert program(Style.GO).table["dry-run"].default_text == "false"


def test_what_needs_a_restart() -> None:
    assert program(Style.GO).fixed_changes(Options(), Options(rows=6, mode="b", dry_run=True)) == ["rows", "dry-run"]


@pytest.mark.parametrize("style", Style)
def test_help_and_version(style: Style, capsys: pytest.CaptureFixture[str]) -> None:
    for flag, expected in (("--help", "how many (default: 5)"), ("-h", "--rows ROWS"), ("--version", "koord-x ")):
        with pytest.raises(SystemExit) as ended:
            program(style).parse([flag])
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out
