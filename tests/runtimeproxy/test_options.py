from __future__ import annotations

from pathlib import Path

import pytest

from koord.service.options import CommandLine, OptionError
from runtimeproxy.options import PROGRAM, Options, status_endpoint


def options(*arguments: str) -> Options:
    return PROGRAM.load(PROGRAM.parse(arguments))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--remote-image-service-endpoint=/x"], "--remote-image-service-endpoint"),
        (["positional"], "positional"),
        (["--hook-timeout"], "hook-timeout"),
        (["--hook-timeout=3"], "--hook-timeout='3'"),
        (["--hook-timeout=0"], "--hook-timeout='0'"),
        (["--hook-timeout=-1s"], "--hook-timeout='-1s'"),
        (["--backend-runtime-mode=Pouch"], "--backend-runtime-mode='Pouch'"),
        (["--koord-runtimeproxy-endpoint=relative.sock"], "--koord-runtimeproxy-endpoint='relative.sock'"),
        (["--bypass=maybe"], "--bypass='maybe'"),
        (["--metrics-endpoint=0.0.0.0:9100"], "--metrics-endpoint='0.0.0.0:9100'"),
        (["--held-bytes-budget=64 apples"], "--held-bytes-budget='64 apples'"),
        (["--log-level=chatty"], "--log-level='chatty'"),
        (["--config=/nonexistent.yaml"], "/nonexistent.yaml: does not exist"),
        (["--hook-time=5s"], "--hook-time"),
    ],
)
def test_what_makes_no_sense_is_named(arguments: list[str], named: str) -> None:
    with pytest.raises(OptionError) as raised:
        options(*arguments)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("hook-tiemout: 3s", "hook-tiemout: is no option; there are "),
        ("hook-timeout: 3", "hook-timeout = 3: not a duration"),
        ("bypass: [1, 2]", "bypass = [1, 2]: must be a string"),
        ("bypass:", "bypass: must be a string"),
        ("- a\n- b", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(OptionError) as raised:
        options(f"--config={file}")
    assert str(file) in str(raised.value)
    assert named in str(raised.value)


def test_upstreams_names_and_defaults() -> None:
    chosen = options()
    assert (chosen.endpoint, chosen.backend, chosen.mode, chosen.skip_key, chosen.skip_value) == (
        "/var/run/koord-runtimeproxy/runtimeproxy.sock",
        "/var/run/containerd/containerd.sock",
        "Containerd",
        "runtimeproxy.koordinator.sh/skip-hookserver",
        "true",
    )


def test_our_defaults() -> None:
    chosen = options()
    assert (chosen.hook_directory, chosen.hook_timeout_s, chosen.drain_timeout_s, chosen.backend_wait_s) == (
        "/etc/runtime/hookserver.d",
        3.0,
        600.0,
        10.0,
    )
    assert (chosen.held_budget_bytes, chosen.status_endpoint) == (64 << 20, "/run/koord/runtime-proxy-metrics.sock")
    assert not chosen.bypass
    assert chosen.skip_namespaces == ()
    assert chosen.privileged_namespaces == ("kube-system", "koordinator-system")
    assert not (chosen.skip_static_pods or chosen.skip_critical_pods)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--remote-runtime-service-endpoint=/run/x.sock"],
        ["--remote-runtime-service-endpoint", "/run/x.sock"],
        ["-remote-runtime-service-endpoint=/run/x.sock"],
        ["-remote-runtime-service-endpoint", "/run/x.sock"],
        ["--remote-runtime-service-endpoint=unix:///run/x.sock"],
    ],
)
def test_gos_spellings(arguments: list[str]) -> None:
    assert options(*arguments).backend == "/run/x.sock"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(["--bypass"], True), (["-bypass"], True), (["--bypass=true"], True), (["--bypass=F"], False), ([], False)],
)
def test_switches(arguments: list[str], expected: bool) -> None:
    assert options(*arguments).bypass is expected


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("hook-timeout: 1s\nbypass: true\nskip-namespaces: [kube-system, koord]\nheld-bytes-budget: 1024\n")
    chosen = options(f"--config={file}", "--hook-timeout=2s")
    assert (chosen.hook_timeout_s, chosen.bypass, chosen.held_budget_bytes) == (2.0, True, 1024)
    assert chosen.skip_namespaces == ("kube-system", "koord")


def test_every_flag_can_stand_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("\n".join(f"{flag}: '{row.default_text}'" for flag, row in PROGRAM.table.items()))
    assert PROGRAM.load(CommandLine({}, str(file))) == Options()


def test_what_needs_a_restart_is_told() -> None:
    before, after = options(), options("--koord-runtimeproxy-endpoint=/run/new.sock", "--hook-timeout=9s")
    assert PROGRAM.fixed_changes(before, after) == ["koord-runtimeproxy-endpoint"]


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"]])
def test_help_and_version_end_with_0(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        PROGRAM.parse(arguments)
    assert raised.value.code == 0
    assert "koord-runtime-proxy" in capsys.readouterr().out


def test_help_says_what_docker_means(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        PROGRAM.parse(["--help"])
    assert "cri-dockerd" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("/run/m.sock", "/run/m.sock"),
        ("unix:///run/m.sock", "/run/m.sock"),
        ("127.0.0.1:9100", "127.0.0.1:9100"),
        ("[::1]:0", "[::1]:0"),
        ("localhost:1", "localhost:1"),
    ],
)
def test_status_endpoints(text: str, expected: str) -> None:
    assert status_endpoint(text) == expected
