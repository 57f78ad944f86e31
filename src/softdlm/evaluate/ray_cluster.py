"""A connection to Ray: one that is there, one to an address, or a small cluster of our own."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any

from softdlm.errors import ClusterError, UsageError

REACH = 10.0
"""Seconds for an address to answer before Ray tries, which would take minutes to give up."""
STORE = 128 * 2**20
"""Bytes of shared memory for a cluster of our own: samples are small."""


class Cluster:
    """Connected while it is open; closes only what it opened."""

    def __init__(self, address: str | None, workers: int | None, gpu: bool) -> None:
        import ray
        import ray.cloudpickle
        import ray.exceptions

        self.ray: Any = ray
        self.gpu, self.asked = gpu, workers
        self.ours = not ray.is_initialized()
        if address is not None and not self.ours:
            raise UsageError(
                f"this process is connected to Ray already: leave the address {address} out, or ray.shutdown() first"
            )
        self.address = address or os.environ.get("RAY_ADDRESS") or "local"

    def __enter__(self) -> Cluster:
        try:
            if self.ours:
                self._connect()
            self.workers = self._count()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.ours:
            self.ray.shutdown()

    @property
    def share(self) -> dict[str, int]:
        """What an actor takes of the cluster."""
        return {"num_cpus": 1, "num_gpus": int(self.gpu)}

    def resources(self) -> dict[str, int]:
        found = self.ray.cluster_resources()
        return {name: int(found.get(name, 0)) for name in ("CPU", "GPU")}

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self.address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = {} if self.asked is None else {"num_cpus": self.asked}
            self.ray.init("local", include_dashboard=False, object_store_memory=STORE, **cores, **quiet)
            return
        reach(self.address)
        try:
            self.ray.init(self.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ClusterError(
                f"no Ray cluster at {self.address}: {reason}; one that wants a token needs RAY_AUTH_MODE=token and "
                "RAY_AUTH_TOKEN set"
            ) from error

    def _count(self) -> int:
        """As many workers as were asked for; a cluster that grows may give the last of them later."""
        have = self.resources()["GPU" if self.gpu else "CPU"]
        if self.gpu and not have and (self.asked is None or self.address == "local"):
            raise UsageError(f"a GPU was asked for, but the cluster ({self.address}) has none: use --device cpu")
        if self.gpu and self.asked is not None and self.address == "local" and self.asked > have:
            raise UsageError(f"{self.asked} workers were asked for, but there are {have} GPUs here")
        return self.asked or max(1, have)


def reach(address: str) -> None:
    """Knock at host:port, so that a wrong address is one line within seconds."""
    host, found, port = address.removeprefix("ray://").rpartition(":")
    if not found:
        if address == "auto":
            return
        raise UsageError(f"the Ray address {address!r} names no port: ray://host:10001, host:6379 or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ClusterError(f"the Ray address {address} cannot be reached: {error}") from error
