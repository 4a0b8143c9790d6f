"""What Hypothesis draws for decoders: bytes, valid ones that were damaged, and documents with faults."""

from copy import deepcopy
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rounds import NIGHTLY

fuzzed = settings(
    max_examples=20_000 if NIGHTLY else 60,
    deadline=None,
    derandomize=not NIGHTLY,  # the same on every machine by day, new ones every night
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def nested(depth: int, kind: type) -> Any:
    """Lists in lists, or maps in maps."""
    value: Any = kind()
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**48 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 2**64, 10**400),
    *(0.0, -0.0, 0.5, 1e308, -1e-320, float("inf"), float("-inf"), float("nan")),
    *("", "0", "-1", "a", "\x00", "\ud800", "\N{SNOWMAN}", "/", "..", "a" * 20_000, "9" * 5_000),
    *(b"", b"\x00", b"a" * 20_000),
    *([], {}, [[]], [None], [0] * 1_000, ["a", 1, None], {"": 0}, {"a": {}}, {0: 0}),
    nested(60, list),
    nested(60, dict),
)
"""Values that are seldom meant."""


def hostile(*, binary: bool) -> st.SearchStrategy[Any]:
    """A hostile value; with ``binary``, what no JSON has may be in it."""
    fit = [value for value in HOSTILE if binary or not (type(value) is bytes or value == {0: 0})]
    return st.sampled_from(fit).map(deepcopy)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key or index) in ``document``."""
    found: list[tuple[Any, Any]] = []
    rest = [document]
    while rest:
        part = rest.pop()
        members = (
            part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        )
        for key, value in members:
            found.append((part, key))
            rest.append(value)
    return found


@st.composite
def faulty(draw: st.DrawFn, valid: Any, *, binary: bool = False) -> Any:
    """``valid`` with one to three faults: something lost, twice, misplaced, or hostile."""
    root = [deepcopy(valid)]
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(root)))
        match draw(st.sampled_from(["replace", "replace", "lose", "repeat", "swap", "wrap", "nudge"])):
            case "replace":
                container[key] = draw(hostile(binary=binary))
            case "lose" if container is not root:
                del container[key]
            case "repeat" if isinstance(container, list) and container is not root:
                container.insert(key, deepcopy(container[key]))
            case "repeat" if isinstance(container, dict):
                container[draw(st.sampled_from(["a", f"{key}_", ""]))] = deepcopy(container[key])
            case "swap":
                other, other_key = draw(st.sampled_from(places(root)))
                container[key] = deepcopy(other[other_key])
            case "wrap":
                container[key] = draw(st.sampled_from([list, tuple]))([container[key]])
            case "nudge" if type(container[key]) is int:
                container[key] += draw(st.sampled_from([-1, 1, 16, 2**32]))
            case _:
                pass
    return root[0]


@st.composite
def misnumbered(draw: st.DrawFn, valid: Any) -> Any:
    """``valid`` with one to three of its integers others."""
    found = deepcopy(valid)
    numbers = [place for place in places(found) if type(place[0][place[1]]) is int]
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(numbers))
        container[key] = draw(
            st.one_of(st.integers(0, 40), st.just(container[key] + 1), st.integers(-(2**31), 2**31))
        )
    return found


@st.composite
def damaged(draw: st.DrawFn, valid: bytes, *, max_faults: int = 4) -> bytes:
    """``valid`` with bits flipped, parts lost, repeated, moved, or put in."""
    found = bytearray(valid)
    for _ in range(draw(st.integers(1, max_faults))):
        begin, end = sorted((draw(st.integers(0, len(found))), draw(st.integers(0, len(found)))))
        end = min(end, begin + draw(st.sampled_from([1, 4, 64, 4096])))
        match draw(st.sampled_from(["flip", "flip", "cut", "lose", "repeat", "insert", "overwrite"])):
            case "flip" if found:
                found[draw(st.integers(0, len(found) - 1))] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del found[begin:]
            case "lose":
                del found[begin:end]
            case "repeat":
                found[begin:begin] = found[begin:end]
            case "insert":
                found[begin:begin] = draw(st.binary(max_size=16))
            case "overwrite":
                found[begin:end] = draw(st.binary(min_size=end - begin, max_size=end - begin))
            case _:
                pass
    return bytes(found)
