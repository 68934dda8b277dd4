from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

from release import deb
from release.run import BuildError, python, run
from release.tree import PREFIX, PROGRAMS, PYTHON, lay_out
from release.wheels import Wheel

TAGGED = (
    "koord-1.0-py3-none-any.whl",
    "pip-26.0-py3-none-any.whl",
    "protobuf-7.1-cp310-abi3-manylinux2014_x86_64.whl",
    "uvloop-0.23-cp311-cp311-manylinux_2_28_x86_64.whl",
    "uvloop-0.23-cp312-cp312-manylinux_2_28_x86_64.whl",
)


@pytest.mark.parametrize("name", ["koord-1.0.tar.gz", "koord.whl", "koord-1.0-py3.whl"])
def test_what_is_not_named_as_a_wheel(name: str) -> None:
    with pytest.raises(BuildError, match=name):
        Wheel.of(Path(name))


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ("License-Expression: MIT\nLicense: other", "MIT"),
        ("License: MIT", "MIT"),
        ("Classifier: License :: OSI Approved :: MIT License\nClassifier: Topic :: Other", "MIT License"),
        ("Version: 1", "see its text"),
    ],
)
def test_licence(tmp_path: Path, metadata: str, licence: str) -> None:
    assert made(tmp_path, {"a-1.dist-info/METADATA": metadata}).licence() == licence


@pytest.mark.parametrize(
    ("version", "expected"),
    [("1.2.0", "1.2.0"), ("1.2.0rc1", "1.2.0~rc1"), ("1.2.0.dev3", "1.2.0~dev3"), ("1.2a4", "1.2~a4")],
)
def test_debian_version(version: str, expected: str) -> None:
    assert deb.debian_version(version) == expected


@pytest.mark.parametrize(("version", "uvloop"), [("3.11", "cp311"), ("3.12", "cp312")])
def test_a_python_s_own_wheels(version: str, uvloop: str) -> None:
    chosen = deb.for_python([Wheel.of(Path(name)) for name in TAGGED], version)
    assert [wheel.name for wheel in chosen] == ["koord", "protobuf", "uvloop"]
    assert uvloop in chosen[-1].path.name


def made(directory: Path, files: dict[str, str], name: str = "a") -> Wheel:
    path = directory / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return Wheel.of(path)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"a-1.data/scripts/tool": ""}, "has no place in the tree"),
        ({"a-1.data/data/etc/tool": ""}, "has no place in the tree"),
        ({"../../../../../../x.py": ""}, "points out of the tree"),
        ({"b.py": ""}, "is in another wheel too"),
    ],
)
def test_a_wheel_that_does_not_fit(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    other = made(tmp_path, {"b.py": ""}, "b")
    with pytest.raises(BuildError, match=reason):
        lay_out([other, made(tmp_path, files)], "1", tmp_path / "root")


@pytest.mark.skipif(shutil.which(f"python{PYTHON}") is None, reason=f"byte code is made by Python {PYTHON}")
def test_the_tree(tmp_path: Path) -> None:
    """What is for compilers, type checkers and pip stays out; programs are links into the version's directory."""
    wheel = made(
        tmp_path,
        {
            "a/__init__.py": "",
            "a/x.pyi": "",
            "a/x.pyx": "",
            "a/tests/x.py": "",
            "a-1.dist-info/RECORD": "",
            "a-1.dist-info/licenses/LICENSE": "",
            "a-1.data/data/share/koord/systemd/u.service": "",
        },
    )
    root = tmp_path / "root"
    lay_out([wheel], "1", root)
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() or path.is_symlink()) == [
        *(f"usr/bin/{name}" for name in sorted(PROGRAMS)),
        *(f"usr/lib/koord/1/bin/{name}" for name in sorted(PROGRAMS)),
        "usr/lib/koord/1/site-packages/a-1.dist-info/licenses/LICENSE",
        "usr/lib/koord/1/site-packages/a/__init__.py",
        "usr/lib/koord/1/site-packages/a/__pycache__/__init__.cpython-311.pyc",
        "usr/lib/systemd/system/u.service",
    ]
    assert (root / "usr/bin/koordctl").resolve() == root / str(PREFIX)[1:] / "1/bin/koordctl"


def test_a_package_without_koord(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="0 wheels of koord"):
        deb.build([made(tmp_path, {})], tmp_path)


@pytest.mark.parametrize(("argv", "reason"), [(["/nonexistent"], "No such file"), (["false"], "false ended with 1")])
def test_a_program_that_fails(argv: list[str], reason: str) -> None:
    with pytest.raises(BuildError, match=reason):
        run(argv)


def test_a_python_that_is_not_there() -> None:
    with pytest.raises(BuildError, match=r"python2\.0 is needed"):
        python("2.0")
