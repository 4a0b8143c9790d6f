"""What a server makes of its token file: as it is by now, or as it was when it could be read last."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from access.token_files import add_token, id_of, revoke_token, secret_of, sending
from blockyard.core.errors import Unauthorized
from blockyard.server.access.authenticator import Authenticator
from blockyard.server.access.principal import ANYONE, Scope
from blockyard.server.access.token_file import TokenFile, TokenFileError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def knows(authenticator: Authenticator, token: str) -> bool:
    try:
        authenticator.principal(sending(token))
    except Unauthorized:
        return False
    return True


def follow(authenticator: Authenticator, change: Callable[[], object], until: Callable[[], bool]) -> None:
    """Follow the file while ``change`` is made, until that has come about."""

    async def following() -> None:
        task = asyncio.create_task(authenticator.follow(lambda: None, every_s=0.005))
        change()
        async with asyncio.timeout(30):
            while not until():  # noqa: ASYNC110 - it is asked of another part, which tells nobody
                await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(following())


def test_a_token_says_who_bears_it(file: Path) -> None:
    token = add_token(file, "allocate", "work", tenant="acme", pools=("a*", "b"))
    principal = Authenticator(TokenFile(file)).principal([(b"authorization", f"bearer  {token}".encode())])
    assert (principal.tenant, principal.token_id) == ("acme", id_of(token))
    assert principal.scopes == {Scope.ALLOCATE, Scope.WORK}
    assert principal.pools == ("a*", "b")
    assert principal.reaches("abc")
    assert principal.reaches("b")
    assert not principal.reaches("B")
    assert not principal.reaches("ba")


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Basic %b",
        b"%b",
        b"Bearer %b0",
        b"Bearer byd_%b",
        b"Bearer byd__",
        b"Bearer \xff",
    ],
)
def test_nothing_else_is_a_token(file: Path, header: bytes | None) -> None:
    token = add_token(file, "read").encode()
    given = None if header is None else header.replace(b"%b", token)
    with pytest.raises(Unauthorized) as raised:
        Authenticator(TokenFile(file)).principal([] if given is None else [(b"authorization", given)])
    assert secret_of(token.decode()) not in str(raised.value)


def test_two_tokens_at_once_are_none(file: Path) -> None:
    first, second = add_token(file, "read"), add_token(file, "admin")
    with pytest.raises(Unauthorized, match="send one token"):
        Authenticator(TokenFile(file)).principal([*sending(first), (b"x", b"y"), *sending(second)])


def test_the_secret_of_one_token_is_no_other_tokens(file: Path) -> None:
    first, second = add_token(file, "read"), add_token(file, "admin")
    mixed = f"byd_{id_of(second)}_{secret_of(first)}"
    assert not knows(Authenticator(TokenFile(file)), mixed)


def test_no_secret_is_right_for_an_unknown_id(file: Path) -> None:
    file.write_text('{"tokens": []}')
    assert not knows(Authenticator(TokenFile(file)), "byd_00ff_")


def test_without_a_file_everyone_is_anyone() -> None:
    assert Authenticator(None).principal([]) is ANYONE
    assert Authenticator(None).knows(ANYONE)


def test_added_and_revoked_tokens_are_noticed_while_it_runs(file: Path) -> None:
    first = add_token(file, "read")
    authenticator = Authenticator(TokenFile(file))
    added: list[str] = []
    follow(
        authenticator,
        lambda: added.append(add_token(file, "read")),
        lambda: bool(added) and knows(authenticator, added[0]),
    )
    follow(authenticator, lambda: revoke_token(file, first), lambda: not knows(authenticator, first))
    assert knows(authenticator, added[0])


def test_a_bearer_is_known_on_as_long_as_its_entry_is_the_same(file: Path) -> None:
    kept, changed = add_token(file, "read"), add_token(file, "read")
    authenticator = Authenticator(TokenFile(file))
    principals = [authenticator.principal(sending(token)) for token in (kept, changed)]
    document = json.loads(file.read_text())
    document["tokens"][1]["scopes"] = ["allocate"]
    follow(
        authenticator,
        lambda: file.write_text(json.dumps(document)),
        lambda: not authenticator.knows(principals[1]),
    )
    assert authenticator.knows(principals[0])
    assert knows(authenticator, changed)


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "no JSON": lambda _: "{",
    "no object": lambda _: [],
    "unknown field": lambda whole: {**whole, "x": 1},
    "no such scope": lambda whole: {"tokens": [{**whole["tokens"][0], "scopes": ["all"]}]},
    "no scope": lambda whole: {"tokens": [{**whole["tokens"][0], "scopes": []}]},
    "no pool": lambda whole: {"tokens": [{**whole["tokens"][0], "pools": []}]},
    "an id twice": lambda whole: {"tokens": whole["tokens"] * 2},
    "no hash": lambda whole: {"tokens": [{**whole["tokens"][0], "sha256": "f" * 63}]},
    "no tenant's name": lambda whole: {"tokens": [{**whole["tokens"][0], "tenant": "a b"}]},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_told_without_what_stands_in_it(file: Path, kind: str) -> None:
    add_token(file, "read")
    whole = json.loads(file.read_text())
    broken = BROKEN[kind](whole)
    file.write_text(broken if isinstance(broken, str) else json.dumps(broken))
    with pytest.raises(TokenFileError, match="is not valid") as raised:
        Authenticator(TokenFile(file))
    assert whole["tokens"][0]["sha256"][:16] not in str(raised.value)
    assert "ffff" not in str(raised.value)


@contextmanager
def errors() -> Iterator[list[Any]]:
    """Those that are logged."""
    with capture_logs() as lines:
        found: list[Any] = []
        yield found
        found += [line for line in lines if line["log_level"] == "error"]


@pytest.mark.parametrize("kind", ["broken", "missing"])
def test_a_file_that_cannot_be_read_changes_no_token_and_is_logged_once(file: Path, kind: str) -> None:
    token = add_token(file, "read")
    authenticator = Authenticator(TokenFile(file))
    good = file.read_text()

    def spoil() -> None:
        if kind == "broken":
            file.write_text(good[:-20])
        else:
            file.unlink()

    with errors() as logged:
        follow(authenticator, spoil, _after(50))
    assert knows(authenticator, token)
    assert [line["event"] for line in logged] == ["the token file cannot be used; tokens stay as they were"]
    other: list[str] = []

    def mend() -> None:
        file.write_text(good)
        other.append(add_token(file, "read"))

    follow(authenticator, mend, lambda: bool(other) and knows(authenticator, other[0]))
    assert knows(authenticator, token)


def test_a_file_that_comes_back_as_it_was_is_read_again(file: Path) -> None:
    first = add_token(file, "read")
    authenticator = Authenticator(TokenFile(file))
    aside = file.with_name("aside")
    with errors() as logged:
        follow(authenticator, lambda: file.rename(aside), _after(50))
    assert len(logged) == 1
    second = add_token(file, "read")
    follow(authenticator, lambda: None, lambda: knows(authenticator, second))
    assert not knows(authenticator, first)
    follow(authenticator, lambda: aside.rename(file), lambda: knows(authenticator, first))


def _after(num_turns: int) -> Callable[[], bool]:
    turns = iter(range(num_turns))
    return lambda: next(turns, None) is None
