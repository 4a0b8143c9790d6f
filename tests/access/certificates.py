"""Certificates for tests of TLS, made anew each time."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM.

    ``authority`` has signed ``server`` and ``client``; ``stranger``, which is another, ``strange_client``.
    These three have their key beside the certificate.
    """

    authority: Path
    server: Path
    client: Path
    stranger: Path
    strange_client: Path


def make_certificates(folder: Path) -> Certificates:
    """Of a server at 127.0.0.1, and of clients."""
    authority, stranger = trustme.CA(), trustme.CA()
    made = Certificates(*(folder / f"{name}.pem" for name in Certificates.__slots__))
    authority.cert_pem.write_to_path(made.authority)
    stranger.cert_pem.write_to_path(made.stranger)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(made.server)
    authority.issue_cert("scheduler@test").private_key_and_cert_chain_pem.write_to_path(made.client)
    stranger.issue_cert("scheduler@test").private_key_and_cert_chain_pem.write_to_path(made.strange_client)
    return made
