"""What is in the real package, and that its programs run from wherever it is unpacked."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from release import deb
from release.tree import PROGRAMS
from release.wheels import Wheel

ALLOWED = re.compile(r"\./usr/(bin|lib/koord|lib/systemd/system|share/doc/koord|share/koord)/")
UNCHECKED_HASH = 1  # PEP 552: bit 0 is "by hash", bit 1 would be "check the source"


@pytest.fixture(scope="module")
def listing(package: Path) -> list[list[str]]:
    """Mode, owner and path of every entry, in the archive's order."""
    out = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    return [[fields[0], fields[1], fields[5]] for fields in (line.split(None, 5) for line in out.splitlines())]


@pytest.fixture(scope="module")
def tree(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    return root


def field(package: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "--field", package, name], capture_output=True, text=True, check=True).stdout


def test_every_entry_is_roots_and_in_a_place_of_ours(listing: list[list[str]]) -> None:
    assert {owner for _, owner, _ in listing} == {"root/root"}
    assert {mode for mode, _, _ in listing} == {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}
    assert [path for mode, _, path in listing if mode[0] != "d" and not ALLOWED.match(path)] == []
    assert sum(mode == "-rwxr-xr-x" for mode, _, _ in listing) == len(PROGRAMS)


def test_there_are_no_conffiles_and_no_pip(package: Path, listing: list[list[str]]) -> None:
    control = subprocess.run(["dpkg-deb", "--info", package], capture_output=True, text=True, check=True).stdout
    assert "conffiles" not in control
    assert [path for _, _, path in listing if path.endswith(("/RECORD", "/WHEEL", ".pyi", ".pyx"))] == []


def test_links_come_after_all_files(listing: list[list[str]]) -> None:
    """dpkg puts files in their places in this order: /usr/bin never names what is not there yet."""
    kinds = [mode[0] for mode, _, _ in listing if mode[0] != "d"]
    assert kinds == sorted(kinds)
    assert [path.split(" -> ")[0] for mode, _, path in listing if mode[0] == "l"] == [
        f"./usr/bin/{name}" for name in sorted(PROGRAMS)
    ]


def test_dependencies(package: Path) -> None:
    assert field(package, "Depends") == "python3.11, libc6 (>= 2.28), systemd (>= 252)\n"


def test_every_module_has_byte_code_that_is_never_checked(tree: Path) -> None:
    sources = sorted(tree.rglob("*.py"))
    assert len(sources) > 300
    for source in sources:
        code = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
        assert int.from_bytes(code.read_bytes()[4:8], "little") == UNCHECKED_HASH, code
    assert len(list(tree.rglob("*.pyc"))) == len(sources)


def test_byte_code_names_the_installed_path(tree: Path) -> None:
    code = next(tree.rglob("koord/__pycache__/__init__.cpython-311.pyc")).read_bytes()
    assert b"/usr/lib/koord/" in code
    assert str(tree).encode() not in code


def test_licences_of_others_are_beside_their_code(tree: Path) -> None:
    text = (tree / "usr/share/doc/koord/copyright").read_text()
    for directory in tree.rglob("*.dist-info"):
        assert [path for path in directory.rglob("*") if path.name.startswith("LICENSE")], directory
        name = directory.name.split("-")[0]
        assert name == "koord" or f"  {name} " in text


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_programs_run_isolated_and_leave_nothing(tree: Path, tmp_path: Path, program: str) -> None:
    """A module of the operator's, in the environment or the working directory, is not ours to load."""
    before = {path: path.stat().st_mtime_ns for path in tree.rglob("*")}
    for name in ("click", "koord", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('loaded')\n")
    done = subprocess.run(
        [tree / "usr/bin" / program, "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.lower().startswith(f"usage: {program}")
    assert {path: path.stat().st_mtime_ns for path in tree.rglob("*")} == before


def test_doctor_and_install_run_on_what_the_package_brings(tree: Path) -> None:
    """Whatever they find here, they find it with the package's own modules."""
    for command in (["doctor"], ["install", "--dry-run", "--package"]):
        done = subprocess.run([tree / "usr/bin/koordctl", *command], capture_output=True, text=True, check=False)
        assert done.returncode in (0, 3, 4), done.stderr
        assert "Traceback" not in done.stderr


def test_the_same_wheels_make_the_same_bytes(package: Path, wheels: list[Wheel], tmp_path: Path) -> None:
    umask = os.umask(0o077)
    try:
        again = deb.build(list(reversed(wheels)), tmp_path, xz_level=0)
    finally:
        os.umask(umask)
    assert again.read_bytes() == package.read_bytes()
