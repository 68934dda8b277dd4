"""The registry serves what an image's tar holds, byte for byte, and nothing else."""

from __future__ import annotations

import hashlib
import json
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.harness import images
from integration.harness.images import Image
from integration.harness.registry import Registry, full_name

ARCHIVED = Image("data-processor:latest", ("/bin/sh", "-c", "echo done"))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    images.write_archive(ARCHIVED, Path("/bin/busybox"), tmp_path / "image.tar")
    return tmp_path / "image.tar"


@pytest.fixture
def registry(archive: Path) -> Iterator[Registry]:
    with Registry([archive]) as serving:
        yield serving


def get(registry: Registry, path: str) -> bytes:
    with urllib.request.urlopen(f"{registry.url}{path}", timeout=5) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize(
    ("reference", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("python:3.9", "docker.io/library/python:3.9"),
        ("team/app:1", "docker.io/team/app:1"),
        ("release.daocloud.io/kpanda/nginx:1.25.3-alpine", "release.daocloud.io/kpanda/nginx:1.25.3-alpine"),
        ("localhost/busybox:1", "localhost/busybox:1"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
    ],
)
def test_names(reference: str, full: str) -> None:
    assert full_name(reference) == full


def test_an_image_is_served_whole(registry: Registry, archive: Path) -> None:
    assert get(registry, "/v2/") == b""
    manifest = json.loads(get(registry, "/v2/library/data-processor/manifests/latest?ns=docker.io"))
    config, layer = manifest["config"], manifest["layers"][0]
    for each in (config, layer):
        blob = get(registry, f"/v2/library/data-processor/blobs/{each['digest']}?ns=docker.io")
        assert (len(blob), f"sha256:{hashlib.sha256(blob).hexdigest()}") == (each["size"], each["digest"])


@pytest.mark.parametrize(
    "path",
    [
        "/v2/library/data-processor/manifests/other?ns=docker.io",
        "/v2/library/data-processor/manifests/latest?ns=quay.io",
        "/v2/library/other/manifests/latest",
        f"/v2/library/data-processor/blobs/sha256:{'0' * 64}",
        "/elsewhere",
    ],
)
def test_what_no_tar_has_is_not_found(registry: Registry, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(registry, path)


def test_containerd_asks_here_alone(registry: Registry, tmp_path: Path) -> None:
    text = (registry.write_hosts(tmp_path / "hosts") / "docker.io" / "hosts.toml").read_text()
    assert text.count(registry.url) == 2 and "push" not in text


@pytest.mark.parametrize("content", [b"", b"no tar"])
def test_another_file_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other.tar").write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.tar is not a docker-archive"):
        Registry([tmp_path / "other.tar"])


def test_a_tar_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "other.tar", "w"):
        pass
    with pytest.raises(ValueError, match=r"manifest\.json"):
        Registry([tmp_path / "other.tar"])
