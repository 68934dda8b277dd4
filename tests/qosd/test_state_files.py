"""That nothing of qosd's is left on a node that Koord is taken off, and that what stays is said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from qosd import state_files
from qosd.options import Options

RUN = ("undo.jsonl", "undo.jsonl.lock", "undo.jsonl.new", "undo.jsonl.unreadable", "besteffort.json")
STATE = (
    *("journal.db", "journal.db-journal", "journal.db-wal", "journal.db-shm", "journal.db.broken"),
    *("models.json", "models.json.unreadable", "policy.yaml", "nodeslo.yaml", "node.yaml"),
)
HALF_WRITTEN = ("models.json.tmp", "policy.yaml.tmp", "nodeslo.yaml.tmp", "node.yaml.tmp")


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Of a node on which every file is there that may be."""
    run, state = tmp_path / "run", tmp_path / "state"
    run.mkdir()
    state.mkdir()
    made = Options(run_dir=run, state_dir=state, hook_socket=run / "hooks.sock", inspect_socket=run / "inspect.sock")
    for name in (*RUN, "besteffort.json.tmp", "hooks.sock", "inspect.sock"):
        (run / name).touch()
    for name in (*STATE, *HALF_WRITTEN):
        (state / name).touch()
    return made


def test_everything_goes_and_the_directories_with_it(options: Options, tmp_path: Path) -> None:
    state_files.remove(options)
    assert list(tmp_path.iterdir()) == []


def test_what_is_anothers_stays_and_so_does_its_directory_which_is_said(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (options.state_dir / "theirs").touch()
    state_files.remove(options)
    assert sorted(tmp_path.rglob("*")) == [options.state_dir, options.state_dir / "theirs"]
    assert f"{options.state_dir} stays: Directory not empty" in caplog.messages


def test_a_file_that_cannot_be_removed_is_said(options: Options, caplog: pytest.LogCaptureFixture) -> None:
    (options.state_dir / "models.json").unlink()
    (options.state_dir / "models.json").mkdir()
    state_files.remove(options)
    assert any(message.startswith(f"{options.state_dir / 'models.json'} stays: ") for message in caplog.messages)
