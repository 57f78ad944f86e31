"""`softdlm serve --executor ray --replicas 2`: one server of two engines, of which one is killed."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from softdlm.errors import UsageError
from softdlm.serve import cluster
from tests.serve import test_process
from tests.serve.test_process import SLOW, Served, chat

pytest.importorskip("ray.serve", reason="pip install 'softdlm[ray,serve]'")
PATIENCE = 120
MOST = 16
HOW = {**SLOW, "max_new_tokens": 100}
REPLICA = b"ray::ServeReplica:softdlm:"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("cluster")
    token = secrets.token_hex(32)  # else Ray leaves one in the home folder
    more = {"RAY_AUTH_TOKEN": token, "HOME": str(folder)}
    with test_process.running(
        folder, "--executor", "ray", "--replicas", "2", "--device", "cpu", seconds=PATIENCE, **more
    ) as made:
        yield made


def running(server: Served) -> list[float]:
    """Answers that each replica decodes now, as /metrics of any of them has it."""
    lines = server.ask("/metrics")[1].splitlines()
    found = [line for line in lines if line.startswith("softdlm_num_requests_running{")]
    assert len(found) == 2
    assert all('replica="' in line for line in found)
    return [float(line.rpartition(" ")[2]) for line in found]


def replicas(server: Served) -> list[int]:
    """Processes of the engines, among the descendants of the server."""
    parents, named = {}, []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if (folder / "cmdline").read_bytes().startswith(REPLICA):
                named.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in named if server.process.pid in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


def until_two(server: Served) -> list[int]:
    end = time.monotonic() + PATIENCE
    while len(found := replicas(server)) != 2:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def test_an_error_of_a_replica_is_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's word on the whole application does not say why it could not start."""
    told = f"a traceback\nRuntimeError: {cluster.told(UsageError('dtype fp8 needs a GPU'))}"
    failed = SimpleNamespace(
        status="DEPLOY_FAILED",
        message="Failed to update the deployments ['engine'].",
        deployments={"engine": SimpleNamespace(message=told)},
    )
    serving = cluster.Serving.__new__(cluster.Serving)
    serving.stop = cluster.Stop()
    monkeypatch.setattr(serving, "_state", lambda: failed)
    with pytest.raises(UsageError, match=r"^dtype fp8 needs a GPU$"):
        serving._becomes_ready()


def test_with_a_replica_killed_the_rest_go_on(server: Served) -> None:
    """Requests of the killed one end with a clear error, all others with the right answer; then it is replaced."""
    right = server.ask("/v1/chat/completions", chat(softdlm=HOW))[1]["choices"][0]["message"]["content"]
    before = until_two(server)
    time.sleep(2)  # what /metrics says of another replica may be a second old
    held = []
    while not (busy := all(running(server))) and len(held) < MOST:
        held.append(server.connect("/v1/chat/completions", chat(stream=bool(len(held) % 2), softdlm=HOW)))
        time.sleep(0.5)
    assert busy
    os.kill(before[0], signal.SIGKILL)
    said = list(map(server.read, held))
    lost = [text for text in said if '"code": "replica_lost"' in text or '"code":"replica_lost"' in text]
    assert 0 < len(lost) < len(held)
    for number, text in enumerate(said):
        if number % 2:
            assert text.endswith("data: [DONE]\n\n")
        elif text not in lost:
            assert json.loads(text)["choices"][0]["message"]["content"] == right
    assert server.ask("/v1/chat/completions", chat(softdlm=HOW))[1]["choices"][0]["message"]["content"] == right
    assert before[1] in until_two(server)
    assert server.ask("/health")[0] == 200


def test_sigterm_ends_it_with_all_its_processes(server: Served) -> None:
    """What was accepted is finished before."""
    held = server.connect("/v1/chat/completions", chat(softdlm=HOW))
    server.until("num_requests_running", 1)
    found = replicas(server)
    server.process.send_signal(signal.SIGTERM)
    assert json.loads(server.read(held))["usage"]["completion_tokens"] == 100
    assert server.process.wait(60) == 0
    assert not [pid for pid in found if Path(f"/proc/{pid}").exists()]
    assert "Traceback" not in server.log.read_text()
