"""A small synchronous client of a Kubernetes API server, independent of the one that the tests are about.

Objects are plain dictionaries. Invariant: an ``Api`` holds at most one connection and opens another when the server
has closed it meanwhile, so that it lives through restarts; it belongs to one thread. An answer other than 2xx raises
ApiError with the server's status, reason and message; a connection that fails raises OSError.
"""

from __future__ import annotations

import contextlib
import http
import http.client
import json
import re
import select
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from integration.cluster.certificates import KeyPair

CALL_S = 30.0
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
JSON = "application/json"
_WARNING = re.compile(r'^299 - "(.*)"$')

Object = dict[str, Any]


class ApiError(Exception):
    """The server refused a call: ``status`` is HTTP's, ``reason`` Kubernetes' (NotFound, Forbidden, …)."""

    def __init__(self, call: str, status: int, reason: str, message: str) -> None:
        super().__init__(f"{call}: {status} {reason}: {message}")
        self.status, self.reason, self.message = status, reason, message


class Api:
    """Calls a server on 127.0.0.1:``port`` whose certificate ``authority`` (PEM) verifies; without ``identity`` and
    ``token`` anonymously."""

    def __init__(
        self, port: int, authority: str, identity: KeyPair | None = None, token: str = "", timeout_s: float = CALL_S
    ) -> None:
        context = ssl.create_default_context(cadata=authority)
        if identity is not None:
            context.load_cert_chain(identity.certificate, identity.key)
        self.warnings: list[str] = []
        """Those of the last answer, which kubectl shows."""
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=timeout_s, context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str, **query: str) -> Object:
        return self.call("GET", f"{path}?{urlencode(query)}" if query else path)

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except ApiError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                return False
            raise
        return True

    def items(self, path: str, **query: str) -> list[Object]:
        """All objects of a collection, in one answer."""
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def create(self, collection: str, manifest: Mapping[str, Any]) -> Object:
        return self.call("POST", collection, manifest)

    def replace(self, path: str, manifest: Mapping[str, Any]) -> Object:
        return self.call("PUT", path, manifest)

    def merge(self, path: str, patch: Mapping[str, Any]) -> Object:
        """A JSON merge patch: None removes a key."""
        return self.call("PATCH", path, patch, MERGE_PATCH)

    def apply(self, path: str, manifest: Mapping[str, Any]) -> Object:
        """Server-side apply: the object is made or changed."""
        return self.call("PATCH", f"{path}?fieldManager=koord-test&force=true", manifest, APPLY_PATCH)

    def delete(self, path: str, **query: str) -> Object:
        """Delete an object, or a collection's objects as far as ``query`` selects them."""
        return self.call("DELETE", f"{path}?{urlencode(query)}" if query else path)

    def healthy(self, path: str = "/readyz") -> bool:
        """Whether a health path answers ok; False also when no server answers."""
        try:
            return self.raw("GET", path) == b"ok"
        except (OSError, ApiError):
            return False

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = JSON) -> Object:
        answer: Object = json.loads(self.raw(method, path, body, content_type))
        return answer

    def raw(self, method: str, path: str, body: Mapping[str, Any] | None = None, content_type: str = JSON) -> bytes:
        """The body of a 2xx answer."""
        if _closed(self._connection):
            self._connection.close()
        headers = {**self._headers, "Accept": "*/*", "Content-Type": content_type}
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = self._connection.getresponse()
            content = response.read()
            self.warnings = [_WARNING.sub(r"\1", each) for each in response.headers.get_all("Warning", ())]
        except http.client.HTTPException as error:
            self._connection.close()
            raise ConnectionError(f"{method} {path}: {error!r}") from error
        except OSError:
            self._connection.close()
            raise
        if response.status // 100 != 2:
            raise _error(f"{method} {path}", response.status, content)
        return content


def _closed(connection: http.client.HTTPSConnection) -> bool:
    """An idle connection has something to read only when the other end has closed it."""
    return connection.sock is not None and bool(select.select([connection.sock], [], [], 0)[0])


def _error(call: str, status: int, content: bytes) -> ApiError:
    """Refusals carry a Status object; what is in front of the API (authentication, health) answers in plain text."""
    with contextlib.suppress(ValueError, AttributeError):
        answer = json.loads(content)
        return ApiError(call, status, answer.get("reason", ""), answer.get("message", ""))
    return ApiError(call, status, "", content.decode(errors="replace").strip()[-2000:])
