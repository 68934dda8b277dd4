"""What is left to best-effort pods outlasts a restart, and a file that is no good costs only that."""

from __future__ import annotations

from pathlib import Path

import pytest

from qosd.model.besteffort import BestEffortScheduling
from qosd.policy import besteffort

LEFT = {"suppress": BestEffortScheduling("LS pods use 12 of 16 CPUs", "0-1,4", is_idle=True, slice_us=100_000)}


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "besteffort.json"
    assert besteffort.load(file) == {}
    besteffort.save(file, LEFT)
    assert besteffort.load(file) == LEFT
    besteffort.save(file, {})
    assert besteffort.load(file) == {}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"suppress": 5}', b'{"suppress": {"cpus": 5, "why": ""}}', b"\xff\xfe"]
)
def test_what_cannot_be_read_is_said(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "besteffort.json"
    file.write_bytes(content)
    assert besteffort.load(file) == {}
    assert str(file) in caplog.text


def test_what_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    besteffort.save(tmp_path / "file" / "besteffort.json", LEFT)
    assert "is lost with a restart" in caplog.text
