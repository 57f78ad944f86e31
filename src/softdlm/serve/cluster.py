"""The server on Ray Serve: the same application in several replicas, each with its own engine, behind Ray's HTTP proxy.

Each replica has its own queue and limits; Ray hands a request to the less loaded of two. /metrics shows all replicas,
each under its label, as they were a second ago.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softdlm import errors
from softdlm.errors import ClusterError, SoftDLMError, UsageError, one_line
from softdlm.evaluate.ray_cluster import Cluster
from softdlm.serve import front
from softdlm.serve.settings import Limits
from softdlm.serve.shared_metrics import open_board
from softdlm.version import __version__

if TYPE_CHECKING:
    from fastapi import FastAPI

APP = "softdlm"
MANY = 100_000
"""Requests that Ray lets into a replica at once: the application's own queue refuses long before."""
LOOK = 0.25
"""Seconds between two looks at the state of the cluster."""
HEALTH_SECONDS = 1.0
"""How often Ray asks a replica for its health; after three failures it is replaced."""
QUIET = {"log_level": "WARNING", "enable_access_log": False}
MARK = "softdlm-failure "
"""Before an error in JSON, so that it can be found in the text that Ray makes of it."""


@dataclass(frozen=True)
class Plan:
    """What a replica needs to build its application. It is sent to the replica's machine."""

    model: str
    loading: Mapping[str, Any]
    names: Sequence[str]
    limits: Limits
    rules: Sequence[str]
    options: Mapping[str, Any]
    """Of `make_app`."""
    version: str = __version__

    def app(self) -> FastAPI:
        """Build the application, on the replica."""
        try:
            if self.version != __version__:
                host = socket.gethostname()
                raise ClusterError(f"{host} has softdlm {__version__}, this is {self.version}: install the same")
            return self._app()
        except SoftDLMError as error:
            raise RuntimeError(told(error)) from None

    def _app(self) -> FastAPI:
        from softdlm.models.load import load
        from softdlm.serve.app import make_app
        from softdlm.serve.rules import offer_rules
        from softdlm.serve.shared_metrics import SharedMetrics

        for file in self.rules:
            offer_rules(Path(file))
        how = {**self.options, "metrics_of": SharedMetrics}
        return make_app(lambda: load(self.model, **self.loading), self.names, self.limits, **how)


class Replica:
    """The class of Ray's deployment; Ray adds the application to it as `app`."""

    app: FastAPI

    async def check_health(self) -> None:
        """Called by Ray. The first call waits until the model is loaded: before that, no request comes here."""
        worker = self.app.state.service.worker
        await worker.ready.wait()
        if worker.thread.failure is not None:
            raise RuntimeError(told(worker.thread.failure))


def told(error: Exception) -> str:
    """An error as text from which `failure_in` makes it again."""
    return MARK + json.dumps({"kind": type(error).__name__, "message": str(error)})


def failure_in(text: str) -> SoftDLMError:
    """The error that a replica told, or else the last of Ray's words."""
    found = re.search(rf"{MARK}(\{{.*\}})", text)
    if found is None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return ClusterError(f"Ray could not start the server: {(lines or ['it does not say why'])[-1]}")
    said = json.loads(found[1])
    kind = getattr(errors, said["kind"], None)
    if isinstance(kind, type) and issubclass(kind, SoftDLMError):
        return kind(said["message"])
    return ClusterError(f"a replica failed: {said['kind']}: {said['message']}")


class Stop:
    """Counts SIGTERM and SIGINT while it is open."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Stop:
        self.before = {each: signal.signal(each, self._hear) for each in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for each, handler in self.before.items():
            signal.signal(each, handler)

    def _hear(self, *_: object) -> None:
        self.count += 1


class Serving:
    """Ray Serve on a cluster, with our application in it, from its start to its end."""

    def __init__(self, cluster: Cluster, limits: Limits, stop: Stop) -> None:
        from ray import serve

        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        self.serve: Any = serve
        self.ray, self.limits, self.stop = cluster.ray, limits, stop
        self.local = cluster.address == "local"
        self.said = ""

    def run(self, plan: Plan, replicas: int, gpu: bool, host: str, port: int) -> None:
        """All of it. Whatever ends it, nothing is left on the cluster."""
        if not self.local and (found := self.serve.status()).proxies:
            apps = ", ".join(found.applications) or "nothing"
            raise ClusterError(f"Ray Serve runs on this cluster already, with {apps}: end it with `serve shutdown`")
        try:
            self._start(host, port)
            self.board = open_board(self.ray)  # it lives while it is held
            self._deploy(plan, replicas, gpu)
            if self._becomes_ready():
                shown = f"[{host}]" if ":" in host else host
                say(f"ready at http://{shown}:{port}")
                self._watch()
                self._drain()
        except (RuntimeError, TimeoutError, ConnectionError, self.ray.exceptions.RayError) as error:
            raise failure_in(str(error)) from error
        finally:
            if not self.local:
                self.serve.shutdown()

    def _start(self, host: str, port: int) -> None:
        """Ray's controller, and its HTTP proxy on the cluster's head."""
        environment = {"env_vars": {front.CALLBACK: f"{front.__name__}.middlewares"}}
        self.serve.start(
            proxy_location="HeadOnly",
            http_options={"host": host, "port": port},
            logging_config=QUIET,
            controller_options={"runtime_env": environment},
        )

    def _deploy(self, plan: Plan, replicas: int, gpu: bool) -> None:
        def build() -> FastAPI:
            return plan.app()

        made = self.serve.deployment(
            name="engine",
            num_replicas=replicas,
            max_ongoing_requests=MANY,
            max_constructor_retry_count=1,
            ray_actor_options={"num_cpus": 1, "num_gpus": int(gpu)},
            health_check_period_s=HEALTH_SECONDS,
            graceful_shutdown_timeout_s=self.limits.shutdown_timeout,
            graceful_shutdown_wait_loop_s=0.5,
            logging_config=QUIET,
        )(self.serve.ingress(build)(Replica))
        self.serve.run_many([self.serve.RunTarget(made.bind(), APP, "/")], wait_for_applications_running=False)

    def _becomes_ready(self) -> bool:
        """Whether all replicas have their model; no, where a signal came first."""
        while self.stop.count == 0:
            state = self._state()
            if state is not None and state.status == "RUNNING":
                return True
            if state is not None and state.status == "DEPLOY_FAILED":
                raise failure_in("\n".join([state.message, *words_of(state)]))
            self._report(state)
            time.sleep(LOOK)
        return False

    def _watch(self) -> None:
        """Until a signal comes."""
        while self.stop.count == 0:
            self._report(self._state())
            time.sleep(LOOK)

    def _drain(self) -> None:
        """No new requests; accepted ones have their time, which Ray measures. A second signal ends it at once."""
        heard, end = self.stop.count, time.monotonic() + self.limits.shutdown_timeout + 5
        self.serve.delete(APP, _blocking=False)
        while self._state() is not None and self.stop.count == heard and time.monotonic() < end:
            time.sleep(LOOK)

    def _state(self) -> Any:
        return self.serve.status().applications.get(APP)

    def _report(self, state: Any) -> None:
        """Ray's words on a deployment that is not well, once."""
        said = "; ".join(words_of(state))
        if said and said != self.said:
            say(said)
        self.said = said


def words_of(state: Any) -> list[str]:
    """What Ray says of each deployment; an error that a replica told is among it."""
    return [each.message.strip() for each in state.deployments.values() if each.message] if state is not None else []


def say(text: str) -> None:
    print(f"softdlm: {one_line(text)}", file=sys.stderr, flush=True)


def take_gpus(cluster: Cluster, device: str | None, replicas: int) -> bool:
    """Whether each replica takes a GPU: where the cluster has some, unless another device was asked for."""
    kind, found = (device or "").split(":")[0], cluster.resources()["GPU"]
    if kind not in ("", "cuda"):
        return False
    if kind and not found:
        raise UsageError(f"--device {device}, but the cluster ({cluster.address}) has no GPU: use --device cpu")
    if 0 < found < replicas and cluster.address == "local":
        raise UsageError(f"--replicas {replicas}, but there are {found} GPUs here: each replica takes one")
    return found > 0


def free_port(host: str, port: int) -> int:
    """The port, or any free one for 0; an error now where Ray's would come late and be long."""
    try:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=kind) as taken:
            return taken.getsockname()[1]
    except OSError as error:
        raise UsageError(f"cannot listen on {host}:{port}: choose another --host or --port") from error


def found_everywhere(model: str) -> str:
    """A folder by its whole path: replicas have working folders of their own."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if model != "builtin" and folder.is_dir() else model


def check(replicas: int) -> None:
    if find_spec("ray") is None:
        raise UsageError("the executor ray needs pip install 'softdlm[ray]'")
    if replicas < 1:
        raise UsageError(f"--replicas must be at least 1, not {replicas}")


def serve_on_ray(
    model: str,
    loading: Mapping[str, Any],
    names: Sequence[str],
    limits: Limits,
    replicas: int,
    rules: Sequence[Path] = (),
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    keys: Sequence[str] = (),
    engine: str = "auto",
    prefix: str = "softdlm_",
    warm: Sequence[int] = (),
) -> None:
    """Serve until a signal ends it, on the cluster of RAY_ADDRESS, or on one of our own on this machine.

    `loading` is what `softdlm.load` takes; an error in loading the model is raised. The folder of the model and the
    files of `rules` must lie under the same path on every machine of the cluster.
    """
    from softdlm.serve.run import is_local

    check(replicas)
    options = {"keys": tuple(keys), "local": is_local(host), "engine": engine, "prefix": prefix, "warm": warm}
    files = [str(file.resolve()) for file in rules]
    if not is_local(host) and not keys:
        say(f"{host} can be reached by others and there is no --api-key")
    with Cluster(None, replicas, gpu=False) as cluster, Stop() as stop:
        gpu = take_gpus(cluster, loading.get("device"), replicas)
        device = "cuda" if gpu else loading.get("device") or "cpu"
        plan = Plan(found_everywhere(model), {**loading, "device": device}, tuple(names), limits, files, options)
        place = host, free_port(host, port) if cluster.address == "local" else port
        Serving(cluster, limits, stop).run(plan, replicas, gpu, *place)
