"""Paths of the server's routes about a pool, and the names that may stand in them."""

import re
from functools import lru_cache
from urllib.parse import quote

from blockyard.core.errors import InvalidRequest

MAX_POOL_NAME = 128
MAX_TENANT_NAME = 64

_POOL = re.compile(r"/v1/pools/([^/?]+)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_pool_name(name: str) -> str:
    """``name``, if the server takes it as a pool's.

    Raises:
        InvalidRequest: It has other characters, or too many.
    """
    return _checked(name, MAX_POOL_NAME)


def check_tenant_name(name: str) -> str:
    """``name``, if the server takes it as a tenant's. Raises as `check_pool_name`."""
    return _checked(name, MAX_TENANT_NAME)


@lru_cache(maxsize=1024)
def pool_path(*parts: str) -> str:
    """``/v1/pools/`` and ``parts``, each percent-encoded."""
    return "/v1/pools/" + "/".join(quote(part, safe="") for part in parts)


def pool_of(path: str) -> str:
    """The name of the pool that ``path``, maybe with a query, is about; empty where it is about none."""
    match = _POOL.match(path)
    return "" if match is None else match[1]


def _checked(name: str, max_length: int) -> str:
    if len(name) > max_length or _NAME.fullmatch(name) is None:
        raise InvalidRequest.of(
            "name",
            f"{name!r} has to be 1 to {max_length} letters, digits, '.', '_', '-', a letter or digit first",
        )
    return name
