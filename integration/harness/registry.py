"""A read-only container registry on loopback that serves docker-archive tars under the registries' own names.

containerd asks it in place of docker.io and the others, so that an image name of a document works as written, tags and
pull policies included, and no machine outside is asked. It serves layers out of the tars, which are uncompressed there;
a layer's digest is the one that the image's config has for it. Invariant: it listens on 127.0.0.1 and ends with
``close()``. A name that no tar has is answered with 404. A file that is not a docker-archive raises ValueError.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar"
DOCKER_HUB = "docker.io"
_CALL = re.compile(r"/v2/(?P<name>[^?]+)/(?P<what>manifests|blobs)/(?P<reference>[^/?]+)")


@dataclass(frozen=True, slots=True)
class Blob:
    """``size_bytes`` bytes of ``file`` from ``offset`` on; ``content`` instead where they are not in a file."""

    kind: str
    digest: str
    size_bytes: int
    file: Path | None = None
    offset: int = 0
    content: bytes = b""

    def descriptor(self) -> dict[str, object]:
        return {"mediaType": self.kind, "size": self.size_bytes, "digest": self.digest}


def full_name(reference: str) -> str:
    """``reference`` with the registry, the folder and the tag that container runtimes add to it."""
    name, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        name, tag = reference, "latest"
    first, slash, _ = name.partition("/")
    if not slash:
        name = f"{DOCKER_HUB}/library/{name}"
    elif not ("." in first or ":" in first or first == "localhost"):
        name = f"{DOCKER_HUB}/{name}"
    return f"{name}:{tag}"


class Registry:
    """Serves the images of ``archives``."""

    def __init__(self, archives: Iterable[Path]) -> None:
        self._manifests: dict[str, Blob] = {}
        self._blobs: dict[str, Blob] = {}
        for archive in archives:
            self._add(archive)
        blobs, manifests = self._blobs, self._manifests

        class Handler(_Handler):
            def find(self, host: str, name: str, what: str, reference: str) -> Blob | None:
                if what == "manifests" and not reference.startswith("sha256:"):
                    return manifests.get(f"{host}/{name}:{reference}")
                return blobs.get(reference)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def names(self) -> list[str]:
        """The full names of all images."""
        return sorted(self._manifests)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def write_hosts(self, directory: Path) -> Path:
        """Write what makes containerd ask here for each registry that the images are of; returns ``directory``."""
        text = f'server = "{self.url}"\n[host."{self.url}"]\n  capabilities = ["pull", "resolve"]\n'
        for host in {name.partition("/")[0] for name in self._manifests}:
            (directory / host).mkdir(parents=True)
            (directory / host / "hosts.toml").write_text(text)
        return directory

    def _add(self, archive: Path) -> None:
        try:
            with tarfile.open(archive) as tar:
                for image in json.loads(_read(tar, "manifest.json")):
                    self._add_image(archive, tar, image["Config"], image["Layers"], image["RepoTags"])
        except (KeyError, tarfile.TarError, json.JSONDecodeError) as error:
            raise ValueError(f"{archive} is not a docker-archive: {error!r}") from error

    def _add_image(self, archive: Path, tar: tarfile.TarFile, config: str, layers: list[str], tags: list[str]) -> None:
        text = _read(tar, config)
        blobs = [_content(CONFIG, text)]
        for digest, layer in zip(json.loads(text)["rootfs"]["diff_ids"], layers, strict=True):
            member = tar.getmember(layer)
            blobs.append(Blob(LAYER, digest, member.size, archive, member.offset_data))
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": blobs[0].descriptor(),
            "layers": [blob.descriptor() for blob in blobs[1:]],
        }
        manifest = _content(MANIFEST, json.dumps(document).encode())
        self._blobs |= {blob.digest: blob for blob in (*blobs, manifest)}
        self._manifests |= {full_name(tag): manifest for tag in tags}


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of the registry protocol; ``ns`` in the query is the registry that containerd means."""

    protocol_version = "HTTP/1.1"

    def find(self, host: str, name: str, what: str, reference: str) -> Blob | None:
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: containerd logs its pulls."""

    def _answer(self, with_body: bool) -> None:
        call = urlsplit(self.path)
        if call.path == "/v2/":
            self._head(HTTPStatus.OK, 0)
            return
        words = _CALL.fullmatch(call.path)
        host = parse_qs(call.query).get("ns", [DOCKER_HUB])[0]
        blob = self.find(host, **words.groupdict()) if words else None
        if blob is None:
            self._head(HTTPStatus.NOT_FOUND, 0)
            return
        self._head(HTTPStatus.OK, blob.size_bytes, blob)
        if with_body:
            self._body(blob)

    def _head(self, status: HTTPStatus, length_bytes: int, blob: Blob | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length_bytes))
        if blob is not None:
            self.send_header("Content-Type", blob.kind)
            self.send_header("Docker-Content-Digest", blob.digest)
        self.end_headers()

    def _body(self, blob: Blob) -> None:
        if blob.file is None:
            self.wfile.write(blob.content)
            return
        with blob.file.open("rb") as file:
            self.wfile.flush()
            left = blob.size_bytes
            while left > 0:
                left -= self.connection.sendfile(file, blob.offset + blob.size_bytes - left, left)


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()


def _content(kind: str, content: bytes) -> Blob:
    return Blob(kind, f"sha256:{hashlib.sha256(content).hexdigest()}", len(content), content=content)
