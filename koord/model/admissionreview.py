"""What an API server asks of a webhook about an object, and what it may be answered: ``request`` and ``response`` of an
AdmissionReview.

The objects are JSON as it was sent: most are of no interest, and a judge decodes those that are into what it needs.
The wire form of both is `koord.webhook.reviews`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
NO_OBJECT = msgspec.Raw()


class AdmissionRequest(msgspec.Struct, frozen=True):
    """``resource``: with its group, ``pods`` or ``apps/deployments``. ``object``, ``old_object``: b"" where there is
    none. ``user``, ``groups``: whose request it is. ``is_dry_run``: nothing will come of it."""

    uid: str
    operation: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    object: msgspec.Raw = NO_OBJECT
    old_object: msgspec.Raw = NO_OBJECT
    user: str = ""
    groups: Sequence[str] = ()
    is_dry_run: bool = False


class AdmissionResponse(msgspec.Struct, frozen=True):
    """The object may pass, changed by the JSON Patch ``patch``; or it may not, if ``code``, an HTTP status, is not 0.

    ``message`` goes to the sender of an object that may not pass, ``warnings`` to that of one that may.
    """

    patch: Sequence[dict[str, Any]] = ()
    warnings: Sequence[str] = ()
    code: int = 0
    message: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.code == 0
