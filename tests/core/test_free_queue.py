"""The free queue beside a plain list."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.core.free_queue import FreeQueue


def test_it_begins_with_every_block_but_the_null_block_in_order() -> None:
    assert list(FreeQueue(5)) == [1, 2, 3, 4]


def test_a_pool_of_the_null_block_alone_has_nothing_free() -> None:
    queue = FreeQueue(1)
    assert (list(queue), len(queue), queue.problems()) == ([], 0, [])


def test_popping_more_than_is_free_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        FreeQueue(3).pop(3)


@given(st.data())
def test_it_does_what_a_list_does(data: st.DataObject) -> None:
    num_blocks = data.draw(st.integers(1, 12))
    queue, model = FreeQueue(num_blocks), list(range(1, num_blocks))
    held: list[int] = []
    for _ in range(data.draw(st.integers(1, 20))):
        action = data.draw(st.sampled_from(["pop", "remove", "append", "prepend", "restore"]))
        if action == "pop":
            count = data.draw(st.integers(0, len(model)))
            popped, model = model[:count], model[count:]
            assert queue.pop(count) == popped
            held += popped
        elif action == "remove" and model:
            block = data.draw(st.sampled_from(model))
            queue.remove([block])
            model.remove(block)
            held.append(block)
        elif action in ("append", "prepend"):
            run = data.draw(st.permutations(held))[: data.draw(st.integers(0, len(held)))]
            getattr(queue, action)(run)
            model = model + run if action == "append" else run + model
            held = [block for block in held if block not in run]
        elif action == "restore":
            state, queue = queue.to_state(), FreeQueue(num_blocks)
            queue.load(state)
        assert (list(queue), len(queue), queue.problems()) == (model, len(model), [])


def break_a_link(queue: Any) -> None:
    queue._next[2] = 4


def break_a_back_link(queue: Any) -> None:
    queue._prev[3] = 1


def close_the_ring_early(queue: Any) -> None:
    queue._next[2], queue._prev[0] = 0, 2


def lose_the_head(queue: Any) -> None:
    queue._next[4], queue._prev[1] = 1, 4


def miscount(queue: Any) -> None:
    queue._num_free += 1


@pytest.mark.parametrize(
    "plant", [break_a_link, break_a_back_link, close_the_ring_early, lose_the_head, miscount]
)
def test_a_planted_fault_is_a_problem(plant: Any) -> None:
    queue = FreeQueue(5)
    plant(queue)
    assert queue.problems()
