"""The archives of images: what a runtime reads in them, and the same bytes from the same files."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path

import pytest
import yaml

from release.chart import CHART
from release.images import archive
from release.images.archive import Image
from release.images.making import RECIPES

IMAGE = Image("registry.example/koord:v1", ("koord-manager",), "65532:65532", {"PATH": "/usr/bin", "LANG": "C"})


def tree(root: Path) -> Path:
    """A program, a link to it, and a directory for everybody."""
    (root / "usr/bin").mkdir(parents=True)
    (root / "tmp").mkdir()
    program = root / "usr/bin/program"
    program.write_text("#!")
    program.chmod(0o700)
    (root / "usr/bin/link").symlink_to("program")
    (root / "etc").write_text("text")
    return root


def pack(root: Path, target: Path) -> tuple[bytes, str]:
    digest = archive.write(IMAGE, root, target)
    return target.read_bytes(), digest


def test_the_same_files_are_the_same_bytes(tmp_path: Path) -> None:
    first = pack(tree(tmp_path / "a"), tmp_path / "a.tar")
    other = tree(tmp_path / "b")
    for path in other.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    assert pack(other, tmp_path / "b.tar") == first
    (other / "etc").write_text("another")
    assert pack(other, tmp_path / "b.tar")[1] != first[1]


def test_a_runtime_finds_config_and_layer_by_the_manifest(tmp_path: Path) -> None:
    _, digest = pack(tree(tmp_path / "root"), tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as packed:

        def content(name: str) -> bytes:
            file = packed.extractfile(name)
            assert file is not None
            return file.read()

        (manifest,) = json.loads(content("manifest.json"))
        config, (layer,) = content(manifest["Config"]), manifest["Layers"]
        assert manifest["RepoTags"] == [IMAGE.reference]
        assert f"sha256:{hashlib.sha256(config).hexdigest()}" == digest
        said = json.loads(config)
        assert said["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content(layer)).hexdigest()}"]
        assert said["config"] == {
            "Entrypoint": ["koord-manager"],
            "Env": ["LANG=C", "PATH=/usr/bin"],
            "User": "65532:65532",
            "WorkingDir": "/",
        }
        with tarfile.open(fileobj=packed.extractfile(layer)) as files:
            assert [(each.name, oct(each.mode), each.uid, each.mtime) for each in files.getmembers()] == [
                ("etc", "0o644", 0, 0),
                ("tmp", "0o1777", 0, 0),
                ("usr", "0o755", 0, 0),
                ("usr/bin", "0o755", 0, 0),
                ("usr/bin/link", "0o777", 0, 0),
                ("usr/bin/program", "0o755", 0, 0),
            ]


def test_hard_links_are_packed_as_two_files(tmp_path: Path) -> None:
    root = tree(tmp_path / "root")
    (root / "again").hardlink_to(root / "etc")
    archive.write(IMAGE, root, tmp_path / "image.tar")
    with tarfile.open(tmp_path / "image.tar") as packed, tarfile.open(fileobj=packed.extractfile("layer.tar")) as files:
        assert all(each.isreg() for each in files.getmembers() if each.name in ("again", "etc"))


@pytest.mark.parametrize(
    ("name", "part"), [("koord-manager", "manager"), ("koord-scheduler", "scheduler"), ("koordlet", "koordlet")]
)
def test_the_recipes_names_are_the_charts(name: str, part: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (recipe,) = (recipe for recipe in RECIPES if recipe.name == name)
    expected = f"{values['imageRepositoryHost']}/{values[part]['image']['repository']}:v{chart['appVersion']}"
    assert recipe.image(chart["appVersion"]).reference == expected
