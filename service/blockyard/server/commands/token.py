"""``blockyard token``: the tokens that a server takes, in the file that it reads."""

from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from blockyard.server.access.principal import ALL_POOLS, Scope
from blockyard.server.access.token_edit import Edit, edit_tokens
from blockyard.server.access.token_file import TokenEntry, TokenFile, TokenFileError, id_of, make_token
from blockyard.server.commands.json_output import json_option, print_json
from blockyard.server.commands.table import print_rows

file_option = click.option(
    "--token-file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    envvar="BLOCKYARD_TOKEN_FILE",
    show_envvar=True,
    help="As of 'blockyard serve'.",
)


@click.group("token")
def command() -> None:
    """Make, list and revoke the tokens by which a server knows its callers.

    They are kept in the file that 'blockyard serve --token-file' names, each with a hash of its secret. A
    server that runs takes in a change within seconds.

    \b
        blockyard token add --token-file tokens.json --scope admin --note me > admin.token
        blockyard serve --token-file tokens.json
        blockyard pools --token-from admin.token
    """  # noqa: D301 - \b keeps click from filling the example


@command.command("add")
@file_option
@click.option(
    "--tenant",
    default="",
    show_default="none: an operator's",
    help="Whose leases are its own. One with a tenant neither sees nor touches those of others.",
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    required=True,
    help="May be repeated. allocate is for schedulers, work for workers; both may read. admin may do all.",
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    default=ALL_POOLS,
    help="Pattern of the names of those pools that it reaches, such as 'acme-*'. May be repeated.",
)
@click.option("--note", default="", help="For people: what it is for.")
@json_option
def add(
    *, path: Path, tenant: str, scopes: tuple[str, ...], pools: tuple[str, ...], note: str, as_json: bool
) -> None:
    """Make a token, and print it: it is shown this once, and cannot be found out again.

    The token alone is on standard output. The file is made if it is missing, for its owner alone.

    \b
        blockyard token add --token-file tokens.json --tenant acme --scope allocate --pool 'acme-*'
        blockyard token add --token-file tokens.json --scope read --note prometheus --json
    """  # noqa: D301 - \b keeps click from filling the example
    try:
        token, entry = make_token(
            tenant=tenant, scopes=[Scope(scope) for scope in scopes], pools=list(pools), note=note
        )
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)[0]
        option = {"pools": "pool"}.get(str(found["loc"][0]), str(found["loc"][0]))
        raise click.BadParameter(str(found["msg"]), param_hint=f"'--{option}'") from error
    _edit(path, lambda entries: [*entries, entry])
    if as_json:
        print_json({"token": token, **_shown(entry)})
        return
    click.echo(token)
    click.echo(f"token {entry.id} is in {path}; its secret is not: keep what was printed", err=True)


@command.command("list")
@file_option
@json_option
def list_tokens(path: Path, as_json: bool) -> None:
    """List the tokens of the file, without secrets.

    \b
        blockyard token list --token-file tokens.json
    """  # noqa: D301 - \b keeps click from filling the example
    try:
        entries = TokenFile(path).read().tokens
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        print_json({"tokens": [_shown(entry) for entry in entries]})
    elif not entries:
        click.echo(f"no tokens in {path}")
    else:
        print_rows(
            ["id", "tenant", "scopes", "pools", "created", "note"],
            [
                (
                    entry.id,
                    entry.tenant or "-",
                    " ".join(entry.scopes),
                    " ".join(entry.pools),
                    f"{entry.created:%Y-%m-%d}",
                    entry.note,
                )
                for entry in entries
            ],
        )


@command.command("revoke")
@file_option
@click.argument("token_id", metavar="ID")
def revoke(path: Path, token_id: str) -> None:
    """Revoke the token ID, or the whole token: a server that runs soon refuses it, and ends its streams.

    What its tenant holds stays under its leases, which expire unless another token renews them.

    \b
        blockyard token revoke --token-file tokens.json 3f9c2b1d7a60
    """  # noqa: D301 - \b keeps click from filling the example
    token_id = id_of(token_id)

    def without(entries: list[TokenEntry]) -> list[TokenEntry]:
        kept = [entry for entry in entries if entry.id != token_id]
        if len(kept) == len(entries):
            raise click.ClickException(f"{path} has no token {token_id!r}: see 'blockyard token list'")
        return kept

    _edit(path, without)
    click.echo(f"token {token_id} is revoked", err=True)


def _edit(path: Path, edit: Edit) -> None:
    try:
        edit_tokens(path, edit)
    except TokenFileError as error:
        raise click.ClickException(str(error)) from error


def _shown(entry: TokenEntry) -> dict[str, Any]:
    """An entry for programs, without the hash."""
    return entry.model_dump(mode="json", exclude={"sha256"})
