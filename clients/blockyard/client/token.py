"""The bearer token that a client shows. It stands in no message, log line or representation."""

import re

_TOKEN = re.compile(r"[\x21-\x7e]+")


def token_headers(token: str | None) -> dict[str, str]:
    """The headers that show ``token``; none for None.

    Raises:
        ValueError: It cannot be a token. The text does not hold it.
    """
    if token is None:
        return {}
    token = token.strip()  # of a file that it was read from
    if _TOKEN.fullmatch(token) is None:
        raise ValueError("a token is one word of ASCII characters, and this is not")
    return {"Authorization": f"Bearer {token}"}
