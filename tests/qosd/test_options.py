"""Flags and the configuration file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from koord.service.options import OptionError
from qosd.options import PROGRAM, Options


def parse(arguments: list[str]) -> Options:
    return PROGRAM.load(PROGRAM.parse(arguments))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hook-sockets: /x", "hook-sockets: is no option"),
        ("failure-policy: fail", "failure-policy = 'fail': must be one of Ignore, Fail"),
        ("runtime-timeout: soon", "runtime-timeout = 'soon': must be float"),
        ("hook-socket: 1", "hook-socket = 1: must be str"),
        ("remove-hookserver-file: 1", "must be bool"),
        ("runtime-timeout: true", "must be float"),
        ("tick-interval: 0", "tick-interval = 0: must be more than 0 and at most 60 seconds"),
        ("tick-interval: .nan", "must be more than 0 and at most 60 seconds"),
        ("tick-interval: .inf", "must be more than 0 and at most 60 seconds"),
        ("runtime-timeout: -1", "runtime-timeout = -1: must be more than 0"),
        ("journal-rows: 0", "journal-rows = 0: must be more than 0"),
        ("journal-rows: 1.5", "journal-rows = 1.5: must be int"),
        ("nri-plugin-index: 10", "nri-plugin-index = 10: must be str"),
        ("nri-plugin-index: 'a1'", "nri-plugin-index = 'a1': must be two digits"),
        ("dry-run: 'yes'", "dry-run = 'yes': must be bool"),
        ("state-dir: []", "state-dir = []: must be str"),
        ("feature-gates: CPUBurst", "feature-gates = 'CPUBurst': 'CPUBurst' is not Name=true or Name=false"),
        ("feature-gates: Burst=true", "feature-gates = 'Burst=true': 'Burst' is no feature gate; there are BECPUSup"),
        ("[", "is not YAML"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "qosd.yaml"
    file.write_text(text)
    with pytest.raises(OptionError, match=str(file)) as caught:
        parse(["--config", str(file)])
    assert complaint in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="does not exist"):
        parse(["--config", str(tmp_path / "none.yaml")])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--failure-policy", "fail"], "--failure-policy='fail': must be one of Ignore, Fail"),
        (["--log-level", "loud"], "--log-level='loud': must be one of "),
        (["--no-such"], "unrecognized arguments: --no-such"),
        (["--hook-s", "x"], "unrecognized arguments: --hook-s x"),
        (["--runtime-timeout", "soon"], "--runtime-timeout='soon': is no number"),
        (["--tick-interval", "0"], "--tick-interval='0': must be more than 0 and at most 60 seconds"),
        (["--tick-interval", "nan"], "--tick-interval='nan': must be more than 0"),
        (["--tick-interval", "61"], "at most 60 seconds"),
        (["--journal-rows", "-5"], "--journal-rows='-5': must be more than 0"),
        (["--journal-rows", "1e3"], "--journal-rows='1e3': is no number"),
        (["--nri-plugin-index", "5"], "--nri-plugin-index='5': must be two digits"),
        (["--feature-gates=Burst=true"], "--feature-gates='Burst=true': 'Burst' is no feature gate; there are BECPU"),
        (["--feature-gates=CPUBurst=on"], "--feature-gates='CPUBurst=on': 'CPUBurst=on' is neither true nor false"),
        (["--dry-run=maybe"], "--no-dry-run: ignored explicit argument 'maybe'"),
    ],
)
def test_a_bad_flag_is_a_usage_error(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    said = capsys.readouterr().err
    assert caught.value.code == 2
    assert "usage: koord-qosd" in said
    assert complaint in said


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


OTHER = {"failure_policy": "Fail", "log_level": "debug", "nri_plugin_index": "77"}
GATES, SWITCHES = "CPUBurst=false,AllAlpha=true", {"CPUBurst": False, "AllAlpha": True}


@pytest.mark.parametrize("flag", PROGRAM.table)
def test_every_option_has_a_flag_and_a_key(tmp_path: Path, flag: str) -> None:
    name = PROGRAM.table[flag].name
    default = getattr(Options(), name)
    if flag == "feature-gates":
        text: object = GATES
        other: object = SWITCHES
    else:
        text = other = OTHER.get(name, (not default) if isinstance(default, bool) else type(default)("7"))
    assert getattr(parse([f"--{flag}"] if other is True else [f"--{flag}", str(text)]), name) == other
    file = tmp_path / "qosd.yaml"
    file.write_text(yaml.safe_dump({flag: str(text) if isinstance(text, Path) else text}))
    assert getattr(parse(["--config", str(file)]), name) == other


def test_a_switch_of_the_file_can_be_turned_off(tmp_path: Path) -> None:
    file = tmp_path / "qosd.yaml"
    file.write_text("dry-run: true\n")
    assert parse(["--config", str(file)]).dry_run
    assert not parse(["--config", str(file), "--no-dry-run"]).dry_run
