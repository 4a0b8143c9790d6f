"""Asks the server beside it whether it is ready, for a container's health check: exit status 0 or 1.

It goes by the server's own ``BLOCKYARD_*`` variables, and needs the standard library alone.
"""

import os
import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 2


def main() -> int:
    """The exit status."""
    port = os.environ.get("BLOCKYARD_PORT", "8484")
    has_tls = bool(os.environ.get("BLOCKYARD_TLS_CERT"))
    url = f"{'https' if has_tls else 'http'}://127.0.0.1:{port}/readyz"
    try:
        tls = _tls() if has_tls else None
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=tls):  # noqa: S310  # nosec B310  # our own
            return 0
    except (OSError, urllib.error.URLError) as error:
        sys.stderr.write(f"{url}: {error}\n")
        return 1


def _tls() -> ssl.SSLContext:
    """Trusts whoever answers on this machine; its certificate is for another name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    certificate = os.environ.get("BLOCKYARD_CLIENT_CERT")
    if certificate:
        context.load_cert_chain(certificate, os.environ.get("BLOCKYARD_CLIENT_KEY") or None)
    return context


if __name__ == "__main__":
    sys.exit(main())
