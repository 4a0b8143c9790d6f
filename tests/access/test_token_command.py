"""``blockyard token``: what it prints, what it writes, and that nothing is lost when many write at once."""

import json
import stat
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from access.token_files import id_of, secret_of, sending
from blockyard.server.access.authenticator import Authenticator
from blockyard.server.access.token_file import TokenFile
from cli.command_line import invoke
from server_process import run, start


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def entries(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["tokens"]
    return found


def test_the_token_alone_is_on_standard_output_and_is_known_to_a_server(file: Path) -> None:
    done = run(
        "token", "add", "--token-file", file, "--tenant", "acme", "--scope", "allocate", "--scope", "work",
        "--pool", "acme-*", "--note", "scheduler 1",
    )  # fmt: skip
    assert done.returncode == 0
    token = done.stdout.removesuffix("\n")
    assert len(token.split()) == 1
    assert len(bytes.fromhex(secret_of(token))) == 32
    assert id_of(token) in done.stderr
    assert secret_of(token) not in done.stderr + file.read_text()
    principal = Authenticator(TokenFile(file)).principal(sending(token))
    assert (principal.tenant, principal.pools) == ("acme", ("acme-*",))
    assert principal.scopes == {"allocate", "work"}
    assert entries(file)[0]["note"] == "scheduler 1"


def test_the_file_is_its_owners_alone_and_nothing_else_stays_beside_it(file: Path) -> None:
    for _ in range(2):
        assert invoke("token", "add", "--token-file", file, "--scope", "read").exit_code == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sorted(path.name for path in file.parent.iterdir()) == ["tokens.json", "tokens.json.lock"]


def test_the_file_behind_a_link_is_changed_and_the_link_stays(file: Path) -> None:
    real = file.with_name("real.json")
    file.symlink_to(real)
    assert invoke("token", "add", "--token-file", file, "--scope", "read").exit_code == 0
    assert file.is_symlink()
    assert len(entries(real)) == 1


def test_json_has_the_token_and_what_it_is_for(file: Path) -> None:
    done = invoke("token", "add", "--scope", "read", "--json", BLOCKYARD_TOKEN_FILE=str(file))
    made = json.loads(done.stdout)
    assert made["id"] == id_of(made["token"])
    assert (made["tenant"], made["scopes"], made["pools"]) == ("", ["read"], ["*"])
    assert "sha256" not in made


def test_tokens_are_listed_without_secrets(file: Path) -> None:
    token = invoke("token", "add", "--token-file", file, "--scope", "admin", "--note", "me").stdout.strip()
    digest = entries(file)[0]["sha256"]
    listed = run("token", "list", "--token-file", file).stdout
    document = invoke("token", "list", "--token-file", file, "--json").stdout
    for text in (listed, document):
        assert id_of(token) in text
        assert "me" in text
        assert secret_of(token) not in text
        assert digest[:8] not in text
    assert json.loads(document)["tokens"][0]["scopes"] == ["admin"]


def test_a_revoked_token_is_gone_and_others_stay(file: Path) -> None:
    first, second = (
        invoke("token", "add", "--token-file", file, "--scope", "read").stdout.strip() for _ in range(2)
    )
    assert invoke("token", "revoke", "--token-file", file, id_of(first)).exit_code == 0
    assert [entry["id"] for entry in entries(file)] == [id_of(second)]


def test_a_whole_token_is_revoked_by_its_id_and_its_secret_is_never_said(file: Path) -> None:
    token = invoke("token", "add", "--token-file", file, "--scope", "read").stdout.strip()
    for exit_code in (0, 1):
        done = invoke("token", "revoke", "--token-file", file, token)
        assert done.exit_code == exit_code
        assert id_of(token) in done.stderr
        assert secret_of(token) not in done.stderr
    assert entries(file) == []


def test_an_unknown_id_is_said_and_changes_nothing(file: Path) -> None:
    invoke("token", "add", "--token-file", file, "--scope", "read")
    before = file.read_bytes()
    done = invoke("token", "revoke", "--token-file", file, "00ff")
    assert done.exit_code == 1
    assert done.stderr == f"Error: {file} has no token '00ff': see 'blockyard token list'\n"
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scope", "all"], "--scope"),
        ([], "--scope"),
        (["--scope", "read", "--tenant", "a b"], "--tenant"),
        (["--scope", "read", "--pool", ""], "--pool"),
        (["--scope", "read", "--note", "x" * 300], "--note"),
    ],
)
def test_a_mistake_in_the_arguments_is_said_and_makes_no_file(
    file: Path, arguments: list[str], said: str
) -> None:
    done = invoke("token", "add", "--token-file", file, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not file.exists()


@pytest.mark.parametrize("action", [("add", "--scope", "read"), ("list",), ("revoke", "00ff")])
def test_a_file_that_is_not_one_of_tokens_is_said_and_left_alone(file: Path, action: tuple[str, ...]) -> None:
    file.write_text("port: 8484\n")
    done = invoke("token", action[0], "--token-file", file, *action[1:])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: the token file {file} is not valid: ")
    assert file.read_text() == "port: 8484\n"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    done = invoke("token", "add", "--token-file", tmp_path / "no" / "tokens.json", "--scope", "read")
    assert done.exit_code == 1
    assert "cannot be written: No such file" in done.stderr


def test_many_that_add_at_once_lose_nothing(file: Path) -> None:
    adding = [
        start("token", "add", "--token-file", file, "--scope", "read", "--note", str(number), stderr=PIPE)
        for number in range(8)
    ]
    tokens = []
    for process in adding:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        tokens.append(out.strip())
    assert {entry["id"] for entry in entries(file)} == {id_of(token) for token in tokens}
    known = Authenticator(TokenFile(file))
    assert {known.principal(sending(token)).token_id for token in tokens} == {
        id_of(token) for token in tokens
    }
