"""Where calls go: what is remembered of each pool, and which words of whom are taken."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockyard.client.origins import origin_for, origins_of
from blockyard.client.paths import pool_of, pool_path
from blockyard.client.routes import MAX_POOLS, Routes
from blockyard.client.wire import Request

A, B, C = "http://a:1", "http://b:1", "http://c:1"
PATH = "/v1/pools/p/stats"


@pytest.mark.parametrize(
    ("url", "origins"),
    [
        (A, (A,)),
        (f"{A},{B}", (A, B)),
        (f" {A}/ , {B} ", (A, B)),
        ([A, B, A], (A, B)),
        ((B,), (B,)),
    ],
)
def test_one_url_or_several_name_servers_each_once(url: str | list[str], origins: tuple[str, ...]) -> None:
    assert origins_of(url) == origins


@pytest.mark.parametrize("url", ["", ",", f"{A},", [], [A, "b:1"], f"{A};{B}", f"{A} {B}"])
def test_what_names_no_server_or_something_else_is_refused(url: str | list[str]) -> None:
    with pytest.raises(ValueError, match="URL"):
        origins_of(url)


@pytest.mark.parametrize(
    ("path", "pool"),
    [
        (pool_path("llama.3-8b_x"), "llama.3-8b_x"),
        (pool_path("p", "sequences", "q/r"), "p"),
        ("/v1/pools/p?force=true", "p"),
        ("/v1/pools", ""),
        ("/v1/hash", ""),
        ("/healthz", ""),
    ],
)
def test_a_paths_pool_is_told(path: str, pool: str) -> None:
    assert pool_of(path) == pool


@pytest.mark.parametrize(
    "location",
    [
        None,
        "",
        "/v1/pools/p/stats",
        "http://b:1/v1/pools/q/stats",
        "http://b:1/v1/pools/p/stats?x=1",
        "http://b:1/other/v1/pools/p/stats",
        "http://b:1//v1/pools/p/stats",
        "http://user:word@b:1/v1/pools/p/stats",
        "http://b:1?/v1/pools/p/stats",
        "http://b:1#/v1/pools/p/stats",
        "ftp://b:1/v1/pools/p/stats",
        "http://b:99999/v1/pools/p/stats",
        "http://b\t:1/v1/pools/p/stats",
        "//b:1/v1/pools/p/stats",
    ],
)
def test_a_location_that_asks_for_something_else_names_no_server(location: str | None) -> None:
    assert origin_for(location, PATH) is None


@pytest.mark.parametrize("target", [PATH, "/v1/pools/p?force=true", "/v1/pools/p/sequences/a%2Fb"])
def test_a_location_that_asks_for_the_same_names_a_server(target: str) -> None:
    assert origin_for(f"https://b.example:8484{target}", target) == "https://b.example:8484"


@pytest.mark.parametrize(
    ("given_urls", "asked", "owner", "is_followed"),
    [
        ([A], A, B, True),
        (["https://a:1"], "https://a:1", "https://b:1", True),
        (["https://a:1"], "https://a:1", B, False),
        ([A, "https://c:1"], "https://c:1", B, False),
        ([A, "https://c:1"], A, "https://b:1", True),
        ([A], A, "https://b:1", False),
    ],
)
def test_what_was_sent_over_tls_is_not_sent_without_and_tls_is_not_begun_by_itself(
    given_urls: list[str], asked: str, owner: str, *, is_followed: bool
) -> None:
    named = Routes(given_urls).named(owner + PATH, Request("GET", asked, PATH))
    assert named == (owner if is_followed else None)


def test_a_call_starts_where_its_pool_was_found_and_others_at_the_first_that_was_given() -> None:
    routes = Routes([A, B])
    assert routes.note_reply(PATH, C, 1)
    starts = [routes.start(path) for path in (PATH, "/v1/pools/p?force=true", "/v1/pools/q", "/v1/pools")]
    assert starts == [C, C, A, A]


def test_one_server_is_a_cluster_once_an_owner_has_answered_or_was_named() -> None:
    replied, redirected = Routes([A]), Routes([A])
    assert not replied.is_cluster
    replied.note_reply(PATH, A, 1)
    redirected.note_redirect(PATH, B, 1)
    assert replied.is_cluster
    assert redirected.is_cluster
    assert Routes([A, B]).is_cluster


def test_after_a_failure_at_a_given_node_all_calls_start_at_the_next_one_in_turn() -> None:
    routes = Routes([A, B, C])
    starts = []
    for _ in range(4):
        starts.append(routes.start("/v1/pools"))
        routes.leave("/v1/pools", starts[-1])
    assert starts == [A, B, C, A]


def test_a_failure_at_an_owner_leaves_the_others_pools_and_the_given_node_as_they_are() -> None:
    routes = Routes([A, B])
    routes.note_reply(PATH, C, 1)
    routes.note_reply("/v1/pools/q", C, 1)
    routes.leave(PATH, C)
    assert [routes.start(path) for path in (PATH, "/v1/pools/q")] == [A, C]


def test_a_late_failure_at_an_owner_does_not_forget_its_successor() -> None:
    routes = Routes([A])
    routes.note_reply(PATH, B, 1)
    routes.note_reply(PATH, C, 2)
    routes.leave(PATH, B)
    assert routes.start(PATH) == C


def test_a_redirect_alone_does_not_raise_what_a_reply_has_to_have() -> None:
    routes = Routes([A])
    assert routes.note_redirect(PATH, B, 9)
    assert routes.note_reply(PATH, B, 2)


def test_no_more_than_so_many_pools_are_remembered_and_the_first_is_forgotten_first() -> None:
    routes = Routes([A])
    paths = [pool_path(f"p{number}") for number in range(MAX_POOLS + 1)]
    for path in paths:
        routes.note_reply(path, B, 1)
    assert [routes.start(path) for path in (paths[0], paths[1], paths[-1])] == [A, B, B]


def test_a_pool_that_is_to_be_made_anew_is_made_where_a_node_says() -> None:
    routes = Routes([A])
    routes.note_reply(PATH, B, 9)
    assert routes.note_redirect("/v1/pools/p", C, 0)
    assert routes.start("/v1/pools/p") == C
    assert not routes.note_reply(PATH, C, 8)
    assert routes.note_reply(PATH, C, 10)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["reply", "redirect", "leave"]),
        st.sampled_from("pq"),
        st.sampled_from([A, B, C]),
        st.integers(1, 4),
    ),
    max_size=30,
)


@given(events=EVENTS)
def test_a_lower_number_than_the_highest_reply_is_never_taken_and_all_else_is(
    events: list[tuple[str, str, str, int]],
) -> None:
    """Beside a model that looks through all that has happened."""
    routes = Routes([A, B])
    replies: list[tuple[str, int]] = []
    places: dict[str, str | None] = {}
    turns = itertools.cycle([A, B])
    first = next(turns)
    for kind, pool, origin, number in events:
        path = pool_path(pool, "stats")
        highest = max((told for of, told in replies if of == pool), default=0)
        if kind == "leave":
            routes.leave(path, origin)
            if places.get(pool) == origin:
                places[pool] = None
            if first == origin:
                first = next(turns)
        else:
            note = routes.note_reply if kind == "reply" else routes.note_redirect
            assert note(path, origin, number) == (number >= highest)
            if number >= highest:
                places[pool] = origin
                if kind == "reply":
                    replies.append((pool, number))
        assert [routes.start(pool_path(each)) for each in "pq"] == [
            places.get(each) or first for each in "pq"
        ]
