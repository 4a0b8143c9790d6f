"""Idempotency keys: never one twice, whoever draws it."""

import os
import subprocess
import sys
import threading

import pytest

from blockyard.client.keys import Keys


def test_threads_never_draw_the_same_key() -> None:
    keys, drawn = Keys(), list[str]()

    def draw() -> None:
        drawn.extend(keys.draw() for _ in range(2000))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == len(drawn) == 16_000


def test_two_sources_never_give_the_same_key() -> None:
    assert not {Keys().draw() for _ in range(9)} & {Keys().draw() for _ in range(9)}


DRAWING = """
import os
from blockyard.client.keys import new_key
print(new_key(), flush=True)
child = os.fork()
if child:
    os.waitpid(child, 0)
print(new_key(), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_draws_keys_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", DRAWING], capture_output=True, text=True, timeout=30, check=True
    )
    drawn = done.stdout.split()
    assert len(set(drawn)) == len(drawn) == 3
