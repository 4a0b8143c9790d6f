"""Starts the two processes, and a worker process anew whenever it dies."""

import multiprocessing
import secrets
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from blockyard.client import Client
from examples.two_processes.child import last_words, run_child
from examples.two_processes.reports import Progress, Report
from examples.two_processes.scheduler_process import run_scheduler
from examples.two_processes.settings import Settings
from examples.two_processes.worker_process import run_worker

MAX_WORKERS = 3
"""Started one after the other; it is no accident when so many have died."""

STOP_TIMEOUT_S = 10.0


def serve(url: str, settings: Settings, on_progress: Callable[[Progress], None]) -> Report:
    """Serve the requests of ``settings`` with a pool of its own at the server of ``url``.

    Raises:
        RuntimeError: A process failed; the text ends with its last words.
    """
    name = f"two-processes-{secrets.token_hex(4)}"
    with Client(url) as client, TemporaryDirectory() as folder:
        pool = client.create_pool(name, plan=settings.plan())
        try:
            with _Processes(url, name, Path(folder), settings) as processes:
                report = processes.wait_for_report(on_progress)
        except BaseException:
            pool.delete(force=True)  # a process that was ended gave nothing back
            raise
        pool.delete()  # refused if a block were held
    return report


class _Processes:
    """A scheduler process, and a worker process that is replaced when it dies. Leaving ends both."""

    def __init__(self, url: str, pool: str, folder: Path, settings: Settings) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._folder = folder
        self._arguments = url, pool, str(folder / "socket"), settings
        self._num_workers = 0
        self._settings = settings
        self._reports, parent = self._context.Pipe(duplex=False)
        self._scheduler = self._started(run_scheduler, parent)
        parent.close()  # so that the pipe ends with the scheduler process, which has the other copy
        self._worker = self._started_worker()

    def wait_for_report(self, on_progress: Callable[[Progress], None]) -> Report:
        """The scheduler process's last word. Until then, dead workers are replaced.

        Raises:
            RuntimeError: The scheduler process failed, or too many worker processes did.
        """
        while True:
            if self._reports in wait([self._reports, self._worker.sentinel]):
                try:
                    said: Progress | Report = self._reports.recv()
                except EOFError:
                    raise RuntimeError(
                        f"the scheduler process failed: {last_words(self._folder, run_scheduler)}"
                    ) from None
                if isinstance(said, Report):
                    return said
                on_progress(said)
                self._kill_worker_if_due(said)
            elif self._num_workers == MAX_WORKERS:
                raise RuntimeError(
                    f"{MAX_WORKERS} worker processes have died: {last_words(self._folder, run_worker)}"
                )
            else:
                self._worker.join()
                self._worker.close()
                self._worker = self._started_worker()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reports.close()
        for process in (self._scheduler, self._worker):  # the worker ends once the scheduler hangs up
            if error is not None:
                process.terminate()
            process.join(STOP_TIMEOUT_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()

    def _started_worker(self) -> SpawnProcess:
        self._num_workers += 1
        return self._started(run_worker)

    def _started(self, role: Callable[..., None], *more: Connection) -> SpawnProcess:
        process = self._context.Process(
            target=run_child,
            args=(self._folder, role, *self._arguments, *more),
            daemon=True,  # else one that was just being started when we were interrupted is waited for
        )
        process.start()
        return process

    def _kill_worker_if_due(self, progress: Progress) -> None:
        due = self._settings.kill_worker_at_step
        if due is not None and progress.num_steps >= due and self._num_workers == 1:
            self._worker.kill()
