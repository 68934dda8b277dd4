"""What ``koordctl lint`` finds, one line each."""

from __future__ import annotations

from koord.model.admission import Finding
from koordctl.fields import Field, Listing

FINDINGS: Listing[Finding] = Listing(
    "findings",
    (Field("object", "OBJECT"), Field("path", "PATH"), Field("sentence", "FOUND")),
    "Nothing to say against it.",
)
