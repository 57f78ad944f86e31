"""A cluster gives the samples of one process, also when it loses a worker on the way."""

import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from softdlm import Decoding
from softdlm.cli.evaluate import find_executor
from softdlm.errors import ClusterError, UsageError
from softdlm.evaluate.cell import Cell, ModelSpec, TaskSpec
from softdlm.evaluate.executors import Failure, LocalExecutor, Work
from softdlm.evaluate.grid import Grid, Plan, sweep
from softdlm.evaluate.grid import plan as plan_grid
from softdlm.evaluate.run import Progress, run
from softdlm.evaluate.task import load_eval_task
from softdlm.records.journal import SAMPLES, SUMMARY, Sample, read_samples
from tests.evaluate.cells import RULES, cell, sample
from tests.tokenizers import checkpoint

ray: Any = pytest.importorskip("ray", reason="pip install 'softdlm[ray]'")

from softdlm.evaluate import ray_cluster, ray_executor  # noqa: E402
from softdlm.evaluate.ray_executor import DEATHS, Owner, RayExecutor  # noqa: E402

ITEMS = 12


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Three CPUs, wherever this runs; tests with it use the connection that this process has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # else Ray leaves one in the home folder
        ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, object_store_memory=2**27)
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Three cells that draw, one of them with rules from a user's file; and among them one whose model is gone."""
    folder = checkpoint(tmp_path_factory.mktemp("ray") / "llada", "llada")
    rules = folder.parent / "rules.py"
    rules.write_text(RULES)
    model = ModelSpec.of(str(folder), device="cpu")
    drawn = Decoding(max_new_tokens=32, temperature=1.0)
    made = (
        *sweep(drawn, ("vanilla", "slerp"), ("topn(1)",)),
        *sweep(drawn, (f"{rules}:Mine(k=2)",), (f"{rules}:leftmost",)),
    )
    first, *rest = plan_grid(Grid((model,), (TaskSpec("mini-math", limit=ITEMS),), made, single=False)).cells
    gone = replace(first, key="gone", cell=replace(first.cell, model=replace(model, name="/no/where")))
    return Plan((first, gone, *rest), ())


@pytest.fixture(scope="module")
def local(chosen: Plan, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Sample]]:
    out = tmp_path_factory.mktemp("local")
    assert list(run(chosen, out, LocalExecutor(3))) == ["gone"]
    return answers(out)


def answers(out: Path) -> dict[str, dict[str, Sample]]:
    """All but the seconds; reading refuses an item that is answered twice."""
    found = {file.parent.name: read_samples(file)[0] for file in out.glob(f"*/{SAMPLES}")}
    return {key: {item: replace(each, seconds=0.0) for item, each in rows.items()} for key, rows in found.items()}


def actors() -> list[int]:
    """Processes of this test's actors: descendants of ours that Ray has named so."""
    parents, named = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(b"ray::Shards"):
                named.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in named if os.getpid() in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def wait_for_no_actors() -> None:
    deadline = time.monotonic() + 20
    while actors():
        assert time.monotonic() < deadline, actors()
        time.sleep(0.05)


def test_three_workers_give_the_samples_of_one_process(
    cluster: None, chosen: Plan, local: dict[str, dict[str, Sample]], tmp_path: Path
) -> None:
    most = 0

    def count(_: Progress) -> None:
        nonlocal most
        most = max(most, len(actors()))

    failures = run(chosen, tmp_path, RayExecutor(batch_size=3), count)
    assert answers(tmp_path) == local
    assert len(local) == 4
    assert [len(found) for key, found in local.items() if key != "gone"] == [ITEMS] * 3
    assert most == 3
    assert list(failures) == ["gone"]
    assert "no such folder" in failures["gone"].reason
    assert [(tmp_path / each.key / SUMMARY).exists() for each in chosen.cells] == [True, False, True, True]
    wait_for_no_actors()


def test_with_a_worker_killed_the_samples_are_the_same(
    cluster: None,
    chosen: Plan,
    local: dict[str, dict[str, Sample]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost: list[Exception] = []
    plain = Owner._lost
    monkeypatch.setattr(Owner, "_lost", lambda *args: (lost.append(args[-1]), plain(*args))[1])
    killed: list[int] = []

    def kill(_: Progress) -> None:
        if not killed:
            killed.append(actors()[0])
            os.kill(killed[0], signal.SIGKILL)

    assert list(run(chosen, tmp_path, RayExecutor(workers=3, batch_size=1), kill)) == ["gone"]
    assert answers(tmp_path) == local
    assert isinstance(lost[0], ray.exceptions.RayActorError)
    wait_for_no_actors()


# The owner alone, on a Ray that goes by a script.


class ScriptedRay:
    """Every call is answered when it is asked for, each sample twice.

    `deadly` items take their worker down, `absent` workers never come up.
    """

    exceptions, cloudpickle = ray.exceptions, ray.cloudpickle

    def __init__(self, deadly: str = "", absent: bool = False, version: str = ray_executor.__version__) -> None:
        self.deadly, self.absent, self.version = deadly, absent, version
        self.calls: list[Work | None] = []
        self.asked: list[str] = []
        self.alive = 0

    def remote(self, **_: Any) -> Any:
        return lambda kind: SimpleNamespace(remote=self.make)

    def make(self, *_: Any) -> Any:
        self.alive += 1
        return SimpleNamespace(about=SimpleNamespace(remote=self.call), answer=SimpleNamespace(remote=self.call))

    def call(self, work: Work | None = None) -> int:
        self.calls.append(work)
        return len(self.calls) - 1

    def kill(self, actor: Any, **_: Any) -> None:
        self.alive -= 1

    def wait(self, refs: list[int], **_: Any) -> tuple[list[int], list[int]]:
        return refs[:1], refs[1:]

    def get(self, ref: int) -> Any:
        work = self.calls[ref]
        if work is None and self.absent:
            raise ray.exceptions.ActorDiedError
        if work is None:
            return {"host": "there", "device": "a GPU", "softdlm": self.version}
        self.asked.extend(work.items)
        if set(self.deadly) & set(work.items):
            raise ray.exceptions.ActorUnavailableError("killed", None)
        return [(work.key, sample(item)) for item in (*work.items, *work.items)]


class ScriptedCluster(ray_cluster.Cluster):
    def __init__(self, script: ScriptedRay) -> None:
        self.ray, self.workers, self.gpu, self.ours = script, 2, False, False

    def __enter__(self) -> "ScriptedCluster":
        return self

    def resources(self) -> dict[str, int]:
        return {"CPU": 0, "GPU": 0}


def test_each_worker_expects_its_part_of_a_cells_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a worker compiles its passes where those that it gets pay for it, as one process does."""
    monkeypatch.setattr(Owner, "_task", lambda self, cell: (None, {}))
    monkeypatch.setattr(ray_executor, "batches", lambda *_: [[SimpleNamespace(id=item)] for item in "ab"])
    cluster: Any = ScriptedCluster(ScriptedRay())
    shards = Owner(cluster, 1, 1.0, {})._cut(Work("one", cell(), ("a", "b"), {}, passes=3000.0))
    assert [(shard.items, shard.passes) for shard in shards] == [(("a",), 1500.0), (("b",), 1500.0)]


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """Two cells, an item a shard."""
    monkeypatch.setattr(ray_executor, "PROBE_AGAIN", 0.001)
    monkeypatch.setattr(Owner, "_cut", lambda self, work: [work._replace(items=(item,)) for item in work.items])
    return [Work("one", cell(), tuple("abcdef"), {}), Work("two", cell(), tuple("ABCDEF"), {})]


Start = Callable[..., Iterator[tuple[str, Any]]]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, works: list[Work]) -> Start:
    def start(script: ScriptedRay, **settings: Any) -> Iterator[tuple[str, Any]]:
        monkeypatch.setattr(ray_executor, "Cluster", lambda *_: ScriptedCluster(script))
        return RayExecutor(**settings).run(works)

    return start


def test_doubles_are_dropped_by_item(start: Start) -> None:
    found = list(start(ScriptedRay()))
    assert sorted((key, each.id) for key, each in found) == [
        *(("one", item) for item in "abcdef"), *(("two", item) for item in "ABCDEF"),
    ]  # fmt: skip


def test_an_item_that_takes_its_workers_down_costs_its_cell_only(start: Start) -> None:
    script = ScriptedRay(deadly="c")
    found = list(start(script))
    failed = [(key, each) for key, each in found if isinstance(each, Failure)]
    assert [key for key, _ in failed] == ["one"]
    assert "lost at item c" in failed[0][1].reason
    assert script.asked.count("c") == DEATHS
    assert {each.id for key, each in found if key == "two"} == set("ABCDEF")
    assert {"a", "b"} <= {each.id for key, each in found if isinstance(each, Sample)}


def test_a_cluster_without_room_is_an_error_after_a_while(start: Start) -> None:
    script, began = ScriptedRay(absent=True), time.monotonic()
    with pytest.raises(ClusterError, match=r"no worker has come up within 0\.1 s: 2 asked for"):
        list(start(script, patience=0.1))
    assert time.monotonic() - began < 5
    assert script.alive == 0


def test_a_worker_with_other_code_is_an_error(start: Start) -> None:
    script = ScriptedRay(version="0.0")
    with pytest.raises(ClusterError, match=r"there has softdlm 0\.0, this is"):
        list(start(script))
    assert script.alive == 0


def test_a_run_that_is_stopped_leaves_no_actor(start: Start) -> None:
    script = ScriptedRay()
    running = start(script)
    next(running)
    assert script.alive == 2
    del running
    assert script.alive == 0


# What is said when it cannot start.


def test_an_address_that_nobody_listens_at_is_said_within_seconds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = time.monotonic()
    for address in (f"ray://127.0.0.1:{port}", f"127.0.0.1:{port}"):
        with pytest.raises(ClusterError, match=f"{address} cannot be reached"):
            ray_cluster.reach(address)
    with pytest.raises(UsageError, match="names no port"):
        ray_cluster.reach("ray://somewhere")
    assert time.monotonic() - start < 5


def test_a_gpu_that_is_not_there_is_said(cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster.Cluster, "resources", lambda self: {"CPU": 3, "GPU": 0})
    with pytest.raises(UsageError, match="a GPU was asked for"):
        next(RayExecutor(gpu=True).run([]))
    assert ray.is_initialized()  # not ours to close
    with pytest.raises(UsageError, match="connected to Ray already"):
        next(RayExecutor(address="ray://elsewhere:10001").run([]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"workers": 0}, "workers must be"), ({"batch_size": 0}, "batch_size must be"), ({"patience": 0.0}, "patience")],
)
def test_bad_settings_are_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RayExecutor(**settings)


def test_options_of_the_command_line() -> None:
    assert find_executor("ray", 4, "ray://there:1", 3, True) == RayExecutor("ray://there:1", 3, 4, True)
    with pytest.raises(UsageError, match="are for --executor ray"):
        find_executor("local", None, ray_address="auto")
    with pytest.raises(UsageError, match="are for --executor ray"):
        find_executor("local", None, workers=2)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'softdlm\[ray\]'"):
        find_executor("ray", None)


def test_a_driver_without_a_gpu_may_ask_for_the_clusters() -> None:
    assert ModelSpec.of("builtin", device="cuda", here=False) == ModelSpec("builtin", "cuda", "bfloat16")
    assert ray_executor.on_own_device(replace(cell(), model=ModelSpec("m", "cuda:3", "x"))).model.device == "cuda"


def test_an_actor_answers_with_the_planned_checkpoint_only(tmp_path: Path) -> None:
    """It digests what it loads by itself: its files may be others than those of the machine that planned."""
    spec = ModelSpec.of(str(checkpoint(tmp_path / "model", "llada")), device="cpu")
    decoding = Decoding.of(max_new_tokens=4, tokens_per_step=4, feedback="vanilla").settled()
    one = Cell(spec, TaskSpec("mini-math", limit=1), decoding)
    record, (item,) = spec.record(spec.checkpoint()), load_eval_task(one.task, spec.checkpoint()).items
    threads = torch.get_num_threads()
    actor = ray_executor.Shards(1, gpu=False)
    torch.set_num_threads(threads)
    ((_, failure),) = actor.answer(Work("key", one, (item.id,), record | {"digest": "0" * 64}))
    assert isinstance(failure, Failure)
    assert "has changed since its digest was taken" in failure.reason
    ((_, found),) = actor.answer(Work("key", one, (item.id,), record))
    assert isinstance(found, Sample)
