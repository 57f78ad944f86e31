"""Cells on a Ray cluster: shards of cells go to actors that hold a model each, one owner gathers the samples.

A shard is a batch of the local executor's, so a cluster decodes what one process decodes. Ray restarts lost actors;
what they had in flight is the owner's to hand out again, since only it knows which items are answered.
"""

from __future__ import annotations

import platform
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

import torch

from softdlm.errors import ClusterError, UsageError
from softdlm.evaluate.cell import Cell
from softdlm.evaluate.executors import Failure, LocalExecutor, Work, batches
from softdlm.evaluate.grid import prompt_lengths
from softdlm.evaluate.ray_cluster import Cluster
from softdlm.evaluate.task import EvalTask, load_eval_task
from softdlm.records.journal import Sample
from softdlm.rule_files import FILE_MODULE
from softdlm.version import __version__

Answers = list[tuple[str, Sample | Failure]]

IN_FLIGHT = 2
"""Shards at an actor: one is decoded while the next is on its way."""
DEATHS = 5
"""How many workers may die at one shard before its cell is given up: an item that kills its worker is not retried
for ever.
"""
PROBE_AGAIN = 0.5
"""Seconds between calls to an actor that is not there yet."""


class Shards:
    """Runs inside an actor: the local executor, a shard at a time."""

    def __init__(self, batch_size: int, gpu: bool) -> None:
        self.local = LocalExecutor(batch_size)
        if not gpu:
            torch.set_num_threads(1)

    def about(self) -> dict[str, str]:
        """Answered once the actor is up: where it is, and with which code."""
        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
        return {"host": socket.gethostname(), "device": gpu or platform.machine(), "softdlm": __version__}

    def answer(self, work: Work) -> Answers:
        return list(self.local.run([work._replace(cell=on_own_device(work.cell))]))


def on_own_device(cell: Cell) -> Cell:
    """An actor sees one GPU, whatever its number is elsewhere."""
    return replace(cell, model=replace(cell.model, device=cell.model.device.split(":")[0]))


def send_rules(pickler: Any) -> None:
    """Rules from files are sent with their code: workers have no module of that name."""
    for name in [name for name in sys.modules if name.startswith(FILE_MODULE)]:
        pickler.register_pickle_by_value(sys.modules[name])


@dataclass(frozen=True)
class RayExecutor:
    """Cells as shards on the actors of a Ray cluster.

    address None is the connection this process has, else RAY_ADDRESS, else a cluster of its own on this machine.
    workers None is one for each GPU, or without `gpu` one for each CPU; each takes one GPU or one CPU thread.
    batch_size None is 32 with a GPU, else 1. patience is how many seconds a run waits without any worker.
    """

    address: str | None = None
    workers: int | None = None
    batch_size: int | None = None
    gpu: bool = False
    patience: float = 300.0
    _seen: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if find_spec("ray") is None:
            raise UsageError("the executor ray needs pip install 'softdlm[ray]'")
        for name in ("workers", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, not {value}")
        if not self.patience > 0:
            raise UsageError(f"patience must be a positive number of seconds, not {self.patience}")

    @property
    def size(self) -> int:
        return self.batch_size or (32 if self.gpu else 1)

    def run(self, works: Iterable[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        with Cluster(self.address, self.workers, self.gpu) as cluster:
            owner = Owner(cluster, self.size, self.patience, self._seen)
            try:
                yield from owner.answers(iter(works))
            except ConnectionError as error:
                raise ClusterError(
                    f"lost the cluster ({error}); finished samples are kept: run the same command again to resume"
                ) from error
            finally:
                owner.dismiss()

    def record(self, cell: Cell) -> dict[str, Any]:
        devices = sorted(set(self._seen.values()))
        return {"executor": "ray", "batch_size": self.size, "engine": cell.model.engine, "worker_devices": devices}


@dataclass
class Worker:
    """An actor and what it was asked; `probe` is the call that is under way until the actor is up."""

    actor: Any
    flights: dict[Any, Work] = field(default_factory=dict)
    probe: Any = None
    probe_at: float = 0.0
    ready: bool = False


class Owner:
    """Hands shards out and gathers what comes back. All state of a run that is not on disk is here."""

    def __init__(self, cluster: Cluster, size: int, patience: float, seen: dict[str, str]) -> None:
        self.ray, self.cluster, self.size, self.patience, self.seen = cluster.ray, cluster, size, patience, seen
        self.queue: deque[Work] = deque()
        self.waiting: dict[str, set[str]] = {}
        self.given_up: set[str] = set()
        self.deaths: Counter[tuple[str, str]] = Counter()
        self.held: dict[Any, tuple[EvalTask, dict[str, int]]] = {}
        self.exhausted = False
        self.last_ready = time.monotonic()
        self.workers: list[Worker] = []
        self.kind = self.ray.remote(**cluster.share, max_restarts=-1, max_task_retries=0)(Shards)

    def answers(self, works: Iterator[Work]) -> Iterator[tuple[str, Sample | Failure]]:
        for _ in range(self.cluster.workers):
            self.workers.append(Worker(self._actor()))
        while not (self.exhausted and not self.queue and not any(worker.flights for worker in self.workers)):
            yield from self._pull(works)
            self._hand_out()
            for ref in self._landed():
                yield from self._land(ref)

    def dismiss(self) -> None:
        """No actor outlives its run, however that ends."""
        for worker in self.workers:
            with suppress(Exception):
                self.ray.kill(worker.actor, no_restart=True)

    def _actor(self) -> Any:
        return self.kind.remote(self.size, self.cluster.gpu)

    def _pull(self, works: Iterator[Work]) -> Iterator[tuple[str, Failure]]:
        """A cell is opened when there is a worker with time for it."""
        while not self.exhausted and len(self.queue) < IN_FLIGHT * sum(worker.ready for worker in self.workers):
            work = next(works, None)
            if work is None:
                self.exhausted = True
                return
            try:
                send_rules(self.ray.cloudpickle)
                self.ray.cloudpickle.dumps(work.cell)
                shards = self._cut(work)
            except Exception as error:
                yield work.key, Failure.of(error)
                continue
            self.waiting[work.key] = set(work.items)
            self.queue.extend(shards)

    def _cut(self, work: Work) -> list[Work]:
        task, lengths = self._task(work.cell)
        cut = batches(task, lengths, self.size, set(work.items))
        each = work.passes / self.cluster.workers
        return [work._replace(items=tuple(item.id for item in batch), passes=each) for batch in cut]

    def _task(self, cell: Cell) -> tuple[EvalTask, dict[str, int]]:
        """The last one stays: the cells of a model on a task come one after another."""
        if (cell.model, cell.task) not in self.held:
            found = cell.model.checkpoint()
            task = load_eval_task(cell.task, found)
            self.held = {(cell.model, cell.task): (task, prompt_lengths(found.tokenizer, task))}
        return self.held[cell.model, cell.task]

    def _hand_out(self) -> None:
        now = time.monotonic()
        for worker in self.workers:
            if not worker.ready and worker.probe is None and worker.probe_at <= now:
                worker.probe = worker.actor.about.remote()
        for depth in range(IN_FLIGHT):
            for worker in self.workers:
                if worker.ready and len(worker.flights) == depth and self.queue:
                    shard = self.queue.popleft()
                    worker.flights[worker.actor.answer.remote(shard)] = shard
        if any(worker.ready for worker in self.workers):
            self.last_ready = now
        elif now - self.last_ready > self.patience:
            raise ClusterError(
                f"no worker has come up within {self.patience:g} s: {self.cluster.workers} asked for, each with "
                f"{self.cluster.share}, the cluster has {self.cluster.resources()}"
            )

    def _landed(self) -> list[Any]:
        """Calls that are done, failed ones too. There are a few for each worker, never one for each item."""
        refs = [ref for worker in self.workers for ref in worker.flights]
        refs += [worker.probe for worker in self.workers if worker.probe is not None]
        if not refs:
            time.sleep(PROBE_AGAIN)
            return []
        done, _ = self.ray.wait(refs, num_returns=1, timeout=PROBE_AGAIN)
        return done

    def _land(self, ref: Any) -> Iterator[tuple[str, Sample | Failure]]:
        worker = next((each for each in self.workers if ref in each.flights or ref == each.probe), None)
        if worker is None:
            return
        if ref == worker.probe:
            self._probed(worker, ref)
            return
        errors = self.ray.exceptions
        try:
            answers: Answers = self.ray.get(ref)
        except errors.RayTaskError as error:
            answers = [(worker.flights[ref].key, Failure(f"on a worker: {error.cause!r}", str(error)))]
        except errors.RayError as error:
            answers = self._lost(worker, error)
        worker.flights.pop(ref, None)
        for key, result in answers:
            yield from self._accept(key, result)

    def _probed(self, worker: Worker, ref: Any) -> None:
        worker.probe = None
        try:
            about = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            raise ClusterError(f"a worker cannot run softdlm: {error}") from error
        except self.ray.exceptions.RayError as error:
            worker.probe_at = time.monotonic() + PROBE_AGAIN
            if isinstance(error, self.ray.exceptions.ActorDiedError):
                self._replace(worker)
            return
        if about["softdlm"] != __version__:
            raise ClusterError(
                f"{about['host']} has softdlm {about['softdlm']}, this is {__version__}: install the same"
            )
        worker.ready = True
        self.seen[about["host"]] = about["device"]

    def _replace(self, worker: Worker) -> None:
        """Ray gives an actor up for good when somebody kills it for good."""
        with suppress(Exception):
            self.ray.kill(worker.actor, no_restart=True)
        worker.actor = self._actor()

    def _lost(self, worker: Worker, error: Exception) -> Answers:
        """The worker is gone: all it had goes back to the head of the queue; the shard it was at is counted."""
        worker.ready, worker.probe_at = False, time.monotonic() + PROBE_AGAIN
        charged = next(iter(worker.flights.values()))
        lost = [shard for shard in worker.flights.values() if shard.key not in self.given_up]
        self.queue.extendleft(reversed(lost))
        worker.flights.clear()
        place = charged.key, charged.items[0]
        self.deaths[place] += 1
        if self.deaths[place] < DEATHS:
            return []
        return [(charged.key, Failure(f"{DEATHS} workers were lost at item {charged.items[0]}", str(error)))]

    def _accept(self, key: str, result: Sample | Failure) -> Iterator[tuple[str, Sample | Failure]]:
        """Each item's first answer; after a failure nothing more of its cell is handed out."""
        if isinstance(result, Failure) and key not in self.given_up:
            self.given_up.add(key)
            self.queue = deque(shard for shard in self.queue if shard.key != key)
            yield key, result
        elif isinstance(result, Sample) and result.id in self.waiting[key]:
            self.waiting[key].remove(result.id)
            yield key, result
