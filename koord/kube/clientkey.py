"""Prints a new key and the request of a certificate for it: ``python -m koord.kube.clientkey``.

For the node's daemon it is a program of its own: it is needed once in days, and the daemon would keep the 10 MiB that
it imports. The key goes through a pipe to the parent process and nowhere else. Arguments: user and group, as the API
server knows them.
"""

from __future__ import annotations

import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def key_and_request(user: str, group: str) -> tuple[bytes, bytes]:
    """Returns a key and the request of a certificate for it, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = {NameOID.ORGANIZATION_NAME: group, NameOID.COMMON_NAME: user}
    subject = x509.Name([x509.NameAttribute(*attribute) for attribute in attributes.items()])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    encoding, no_encryption = serialization.Encoding.PEM, serialization.NoEncryption()
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, no_encryption)
    return private, request.public_bytes(encoding)


if __name__ == "__main__":
    sys.stdout.buffer.write(b"".join(key_and_request(*sys.argv[1:])))
