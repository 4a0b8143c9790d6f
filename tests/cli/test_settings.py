from dataclasses import fields
from typing import Any

import pytest

from blockyard.server.settings import Settings
from cli.command_line import invoke


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", -1),
        ("port", 65_536),
        ("max_pools", 0),
        ("shutdown_timeout_s", -1),
        ("log_level", "loud"),
        ("log_format", "xml"),
    ],
)
def test_a_value_that_breaks_the_rule_of_its_field_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field} is "):
        Settings(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"), [("port", 0), ("port", 65_535), ("max_pools", 1), ("log_level", "debug")]
)
def test_a_value_at_the_edge_of_its_rule_is_taken(field: str, value: Any) -> None:
    assert getattr(Settings(**{field: value}), field) == value


@pytest.fixture(scope="module")
def options() -> str:
    """The options in ``blockyard serve --help``, without its line breaks."""
    _, _, shown = invoke("serve", "--help").stdout.partition("Options:")
    return " ".join(shown.split())


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_every_setting_is_an_option_and_a_variable_with_a_sentence(name: str, options: str) -> None:
    _, _, entry = options.partition(f"--{name.replace('_', '-')} ")
    sentence, _, rest = entry.partition("[env var: ")
    assert rest.startswith(f"BLOCKYARD_{name.upper()}")
    assert ". " in sentence
