"""The metrics of all replicas behind one address. Each hands its own over every second; any has them all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from softdlm.serve.metrics import Metrics

BOARD, NAMESPACE = "softdlm-metrics", "softdlm"
EVERY, FORGOTTEN = 1.0, 10.0
"""Seconds between two reports of a replica, and until one that does not report is left out."""


class Board:
    """An actor of the command's own: what each replica said last."""

    def __init__(self) -> None:
        self.seen: dict[str, tuple[float, list[Metric]]] = {}

    def put(self, replica: str, families: list[Metric]) -> None:
        self.seen[replica] = time.monotonic(), families

    def all(self) -> dict[str, list[Metric]]:
        end = time.monotonic() - FORGOTTEN
        return {replica: families for replica, (at, families) in self.seen.items() if at > end}


def open_board(ray: Any) -> Any:
    """The board, which ends with the process that opened it."""
    return ray.remote(num_cpus=0)(Board).options(name=BOARD, namespace=NAMESPACE).remote()


class SharedMetrics(Metrics):
    """A replica's."""

    def __init__(self, model_name: str, prefix: str = "softdlm_") -> None:
        super().__init__(model_name, prefix)
        import ray
        from ray import serve

        self.ray: Any = ray
        self.replica = str(serve.get_replica_context().replica_id.unique_id)
        self.board = ray.get_actor(BOARD, namespace=NAMESPACE)
        threading.Thread(target=self._report, name="softdlm-metrics", daemon=True).start()

    def _report(self) -> None:
        while True:
            self.board.put.remote(self.replica, list(self.registry.collect()))
            time.sleep(EVERY)

    def text(self) -> bytes:
        others = self.ray.get(self.board.all.remote(), timeout=5)
        return generate_latest(Families(merged({**others, self.replica: list(self.registry.collect())})))


class Families(CollectorRegistry):
    """Metrics that were collected already."""

    def __init__(self, families: Sequence[Metric]) -> None:
        super().__init__()
        self.families = families

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


def merged(seen: Mapping[str, Iterable[Metric]]) -> list[Metric]:
    """One family for each name, its samples under the label of their replica."""
    found: dict[str, Metric] = {}
    for replica, families in seen.items():
        for each in families:
            into = found.setdefault(each.name, Metric(each.name, each.documentation, each.type))
            into.samples += [one._replace(labels={**one.labels, "replica": replica}) for one in each.samples]
    return list(found.values())
