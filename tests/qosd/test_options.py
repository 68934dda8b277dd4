"""Flags and the configuration file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from koord.service.config import ConfigError
from qosd.options import Options, parse


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hook-sockets: /x", "hook-sockets: is no option"),
        ("failure-policy: fail", "failure-policy = 'fail': must be one of Ignore, Fail"),
        ("runtime-timeout: soon", "runtime-timeout = 'soon': must be float"),
        ("hook-socket: 1", "hook-socket = 1: must be str"),
        ("remove-hookserver-file: 1", "must be bool"),
        ("runtime-timeout: true", "must be float"),
        ("[", "is not YAML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "qosd.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=str(file)) as caught:
        parse(["--config", str(file)])
    assert complaint in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        parse(["--config", str(tmp_path / "none.yaml")])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--failure-policy", "fail"],
        ["--log-level", "loud"],
        ["--no-such"],
        ["--hook-s", "x"],
        ["--runtime-timeout", "soon"],
    ],
)
def test_a_bad_flag_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == 2
    assert "usage: koord-qosd" in capsys.readouterr().err


def test_defaults() -> None:
    assert parse([]) == Options()


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "qosd.yaml"
    file.write_text(
        "hook-socket: unix:///run/a.sock\nfailure-policy: Fail\nruntime-timeout: 1\nremove-hookserver-file: true\n"
    )
    options = parse(["--config", str(file), "--failure-policy", "Ignore", "--hookserver-dir", ""])
    assert options == Options(
        hook_socket=Path("/run/a.sock"), runtime_timeout=1.0, remove_hookserver_file=True, hookserver_dir=""
    )


def test_every_option_has_a_flag_and_a_key(tmp_path: Path) -> None:
    for option in fields(Options):
        default = getattr(Options(), option.name)
        flag = "--" + option.name.replace("_", "-")
        arguments = [flag] if isinstance(default, bool) else [flag, str(default)]
        assert getattr(parse(arguments), option.name) in (default, True)
