"""A server that tells of a cluster what it is told to, for what others make of it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from blockyard.server.access.principal import ANYONE, PRINCIPAL_KEY
from blockyard.server.app import create_app
from blockyard.server.cluster.report import ClusterReport
from blockyard.server.cluster.routes import cluster_routes
from blockyard.server.settings import Settings
from cluster.made_up_report import make_report
from waiting import wait_for

OF_THE_CLUSTER = ("/v1/cluster", "/dashboard/cluster.json")


@dataclass(slots=True)
class ToldCluster:
    """What is told, from the next time on that somebody asks."""

    url: str
    report: ClusterReport


@contextmanager
def telling_server() -> Iterator[ToldCluster]:
    """A whole server, but for these routes over a report that can be changed."""
    told = ToldCluster("", make_report())
    cluster = FastAPI()
    cluster.include_router(cluster_routes(lambda: told.report))
    server = create_app(Settings(volatile=True))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") in OF_THE_CLUSTER:
            scope[PRINCIPAL_KEY] = ANYONE
            await cluster(scope, receive, send)
        else:
            await server(scope, receive, send)

    process = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=process.run)
    thread.start()
    try:
        wait_for(lambda: process.started)
        told.url = f"http://127.0.0.1:{process.servers[0].sockets[0].getsockname()[1]}"
        yield told
    finally:
        server.end_long_requests()
        process.should_exit = True
        thread.join(30)
