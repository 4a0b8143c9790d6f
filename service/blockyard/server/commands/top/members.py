"""Who holds a pool's blocks, who serves them, and how long calls to the server take: a table each."""

from rich import box
from rich.table import Table
from rich.text import Text

from blockyard.server.commands.top.pool_watch import SeenPool
from blockyard.server.latency import WINDOW_S

MAX_ROWS = 10
"""Of one table."""


def holders(seen: SeenPool, num_rows: int) -> Table:
    """The leases that hold the most blocks, the largest first."""
    shown = seen.pool.leases[:num_rows]
    if not shown:
        return _table("holder", rows_missing="no leases")
    table = _table(_heading("holder", len(shown), seen.pool.stats.num_leases), "blocks", "seqs", "expires")
    for lease in shown:
        figures = (f"{lease.num_blocks:,}", f"{lease.num_sequences:,}", _seconds(lease.expires_in_ms))
        _add(table, lease.holder, *figures)
    return table


def workers(seen: SeenPool, num_rows: int) -> Table:
    """Lost ones first, then by rank."""
    shown = seen.pool.workers[:num_rows]
    if not shown:
        return _table("worker", rows_missing="no workers")
    table = _table(_heading("worker", len(shown), seen.pool.stats.num_workers), "rank", "state", "silent")
    for worker in shown:
        style = "bold red" if worker.state == "lost" else ""
        figures = (f"{worker.rank:,}", worker.state, _seconds(worker.silent_ms))
        _add(table, worker.worker_id, *figures, style=style)
    return table


def latency(seen: SeenPool) -> Table:
    """Of the calls that schedulers wait for, to all pools."""
    window = f"in {WINDOW_S:.0f} s"
    if not seen.latency:
        return _table("calls, all pools", rows_missing=f"none measured {window}")
    table = _table("calls, all pools", window, "p50", "p99")
    for each in seen.latency:
        _add(table, each.call, f"{each.num_calls:,}", f"{each.p50_ms:,.2f} ms", f"{each.p99_ms:,.2f} ms")
    return table


def _table(name: str, *figures: str, rows_missing: str | None = None) -> Table:
    """A first column of names, which break where there is no room, and ``figures``; or why it has no rows."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(name, overflow="fold")
    for figure in figures:
        table.add_column(figure, justify="right", no_wrap=True)
    if rows_missing is not None:
        table.add_row(Text(rows_missing))
    return table


def _add(table: Table, name: str, *figures: str, style: str = "") -> None:
    """A row. A holder calls itself what it likes: nothing in it may steer the terminal."""
    shown = "".join(sign if sign.isprintable() else "?" for sign in name)
    table.add_row(Text(shown), *map(Text, figures), style=style)


def _heading(name: str, num_shown: int, num_all: int) -> str:
    return name if num_shown >= num_all else f"{name}, {num_shown:,} of {num_all:,}"


def _seconds(time_ms: int) -> str:
    return f"{time_ms / 1e3:,.1f} s"
