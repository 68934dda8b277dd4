"""Who gets a lock, and who cannot stand in its way."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from koord.service import lockfile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.lock"


def test_one_holder_at_a_time_and_no_file_afterwards(path: Path) -> None:
    with lockfile.held(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(BlockingIOError), lockfile.held(path):
            raise AssertionError
        assert path.exists()
    assert not path.exists()
    with lockfile.held(path):
        pass


def test_the_file_of_a_holder_that_was_killed_is_taken_over(path: Path) -> None:
    path.touch(0o600)
    with lockfile.held(path):
        pass
    assert not path.exists()


def test_locks_on_the_directory_do_not_matter(path: Path) -> None:
    """Everybody may take them: flock(2) asks for no more than an open descriptor."""
    directory = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    try:
        with lockfile.held(path):
            pass
    finally:
        os.close(directory)


def linked(path: Path) -> None:
    path.with_name("precious").touch(0o600)
    path.hardlink_to(path.with_name("precious"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.touch(0o644), "mode 0644"),
        (lambda path: os.mkfifo(path, 0o600), "is no lock of ours"),
        (lambda path: path.symlink_to("/etc/passwd"), "symbolic links"),
        (lambda path: path.mkdir(), "directory"),
        (linked, "2 links"),
    ],
)
def test_what_others_may_open_is_no_lock(path: Path, make: Callable[[Path], None], said: str) -> None:
    make(path)
    with pytest.raises(OSError, match=said) as caught, lockfile.held(path):
        raise AssertionError
    assert str(path) in str(caught.value)
    assert os.path.lexists(path)


def test_two_never_hold_it_at_once_while_the_file_comes_and_goes(path: Path) -> None:
    """The file is removed by each holder: a second one may have opened the former file."""
    inside, most, held = 0, 0, 0

    def contend() -> None:
        nonlocal inside, most, held
        for _ in range(300):
            try:
                with lockfile.held(path):
                    inside += 1
                    most = max(most, inside)
                    held += 1
                    inside -= 1
            except BlockingIOError:
                continue

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (1, 0)
    assert held > 0
    assert not path.exists()
