import os
import stat
from pathlib import Path

import pytest
import zmq
import zmq.auth

from cli.command_line import invoke


def mode_of(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_it_makes_a_pair_of_which_others_cannot_read_the_secret(tmp_path: Path) -> None:
    done = invoke("curve-key", tmp_path / "router")
    assert done.exit_code == 0, done.output
    public, secret = zmq.auth.load_certificate(tmp_path / "router.key_secret")
    assert secret is not None
    assert zmq.curve_public(secret) == public
    assert zmq.auth.load_certificate(tmp_path / "router.key") == (public, None)
    assert mode_of(tmp_path / "router.key_secret") == 0o600
    assert mode_of(tmp_path / "router.key") == 0o644
    assert secret.decode() not in done.output


@pytest.mark.parametrize("there", ["router.key", "router.key_secret"])
def test_a_key_that_is_there_is_not_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    done = invoke("curve-key", tmp_path / "router")
    assert done.exit_code == 1
    assert "not overwritten" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_where_nothing_can_be_written_is_said(tmp_path: Path) -> None:
    done = invoke("curve-key", tmp_path / "nowhere" / "router")
    assert done.exit_code == 1
    assert "nowhere/router.key: No such file" in done.stderr


@pytest.mark.parametrize("prefix", [".", "/"])
def test_a_prefix_has_a_name(prefix: str) -> None:
    assert invoke("curve-key", prefix).exit_code == 2


def test_it_leaves_the_mask_for_new_files_as_it_was(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        invoke("curve-key", tmp_path / "router")
        assert os.umask(0o022) == 0o027
    finally:
        os.umask(before)


def test_its_help_teaches_the_three_steps() -> None:
    shown = invoke("curve-key", "--help").stdout
    for word in ("1.", "2.", "3.", "--event-curve-key server.key_secret", "--event-curve-clients followers"):
        assert word in shown
    assert "\\\n" in shown
