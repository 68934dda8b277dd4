"""kubeconfig files that name certificates by path, so that a rotated certificate needs no new file."""

from __future__ import annotations

from pathlib import Path

import yaml

from integration.cluster.certificates import KeyPair


def write(path: Path, server: str, authority: Path, user: str, identity: KeyPair) -> None:
    """Write a file with one context, ``koord``: ``user`` on ``server`` (a URL), its certificate verified by
    ``authority``."""
    cluster = {"server": server, "certificate-authority": str(authority)}
    credentials = {"client-certificate": str(identity.certificate), "client-key": str(identity.key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "koord",
        "clusters": [{"name": "koord", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "koord", "context": {"cluster": "koord", "user": user}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False))
