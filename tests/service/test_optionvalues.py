from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.service.optionvalues import (
    boolean,
    duration_s,
    host_port,
    listen_address,
    names,
    optional_host_port,
    optional_listen_address,
    optional_path,
    positive_duration_s,
    size_bytes,
    socket_path,
    switches,
)


@pytest.mark.parametrize(
    ("read", "text", "complaint"),
    [
        (duration_s, "3", "not a duration such as 300ms, 3s or 1m30s"),
        (duration_s, "-1s", "not a duration"),
        (duration_s, "1s 2s", "not a duration"),
        (positive_duration_s, "0", "must be more than 0"),
        (size_bytes, "64 apples", "not a size such as 67108864 or 64MiB"),
        (size_bytes, "-1", "not a size"),
        (size_bytes, "1iB", "not a size"),
        (size_bytes, "1MK", "not a size"),
        (size_bytes, "MiB", "not a size"),
        (size_bytes, "", "not a size"),
        (boolean, "yes", "neither true nor false"),
        (socket_path, "relative.sock", "not an absolute path of a unix socket"),
        (socket_path, "", "not an absolute path of a unix socket"),
        (optional_path, "relative", "not an absolute path"),
        (host_port, "", "must be host:port"),
        (host_port, ":80", "must be host:port"),
        (host_port, "host", "must be host:port"),
        (host_port, "host:", "must be host:port"),
        (host_port, "host:65536", "must be host:port"),
        (host_port, "host:-1", "must be host:port"),
        (optional_host_port, "host:x", "must be host:port"),
        (optional_host_port, ":80", "must be host:port"),
        (listen_address, "", "must be host:port or :port"),
        (listen_address, "80", "must be host:port or :port"),
        (listen_address, ":", "must be host:port or :port"),
        (optional_listen_address, "host:65536", "must be host:port or :port"),
        (switches, "BECPUEvict", "'BECPUEvict' is not Name=true or Name=false"),
        (switches, "a=true,b", "'b' is not Name=true or Name=false"),
        (switches, "=true", "'=true' is not Name=true or Name=false"),
        (switches, "a=", "'a=' is neither true nor false"),
        (switches, "a=yes", "'a=yes' is neither true nor false"),
        (switches, "a=true=false", "'a=true=false' is neither true nor false"),
        (switches, "a:true", "'a:true' is not Name=true or Name=false"),
    ],
)
def test_what_has_no_meaning_is_refused(read: Callable[[str], object], text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("3s", 3.0),
        ("300ms", 0.3),
        ("1.5h", 5400.0),
        ("1m30s", 90.0),
        ("2h45m", 9900.0),
        (".5s", 0.5),
        ("10us", 1e-5),
        ("10µs", 1e-5),
    ],
)
def test_durations(text: str, expected: float) -> None:
    assert duration_s(text) == pytest.approx(expected)


@given(st.text(max_size=8))
def test_a_duration_is_a_number_of_seconds_or_refused(text: str) -> None:
    try:
        assert duration_s(text) >= 0
    except ValueError as error:
        assert "duration" in str(error)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("5", 5), ("64MiB", 64 << 20), ("1Gi", 1 << 30), ("2K", 2048)]
)
def test_sizes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


def test_names() -> None:
    assert names(" a, b,, c ") == ("a", "b", "c")
    assert names("") == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=true,b=false", {"a": True, "b": False}),
        (" a = True , b=F,, c=1", {"a": True, "b": False, "c": True}),
        ("a=true,a=false", {"a": False}),
    ],
)
def test_switches(text: str, expected: dict[str, bool]) -> None:
    assert switches(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:9877", ("10.0.0.1", 9877)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        ("fd00::1:9877", ("fd00::1", 9877)),
        ("host:0", ("host", 0)),
    ],
)
def test_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert host_port(text) == listen_address(text) == expected
    assert optional_host_port(text) == optional_listen_address(text) == text


def test_every_address() -> None:
    assert listen_address(":9877") == ("", 9877)
    assert optional_listen_address(":9877") == ":9877"


def test_no_address() -> None:
    assert optional_host_port("") == optional_listen_address("") == ""
