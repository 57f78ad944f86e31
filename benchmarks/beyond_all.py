"""benchmarks/beyond.py on several networks and both tasks, side by side on one GPU.

python benchmarks/beyond_all.py NETWORKS_FOLDER OUT_FOLDER --list first --seconds 300
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", type=Path, help="folder of checkpoint folders; builtin is added")
    parser.add_argument("out", type=Path)
    parser.add_argument("--list", default="first")
    parser.add_argument("--tasks", default="mini-math,mini-code")
    parser.add_argument("--only", help="names of networks, separated by commas")
    parser.add_argument("--parts", type=int, default=1, help="processes for each network and task")
    parser.add_argument("--seconds", type=float, default=300)
    asked, rest = parser.parse_known_args()  # the rest are options of beyond.py
    asked.out.mkdir(parents=True, exist_ok=True)
    folders = [each.parent for each in sorted(asked.networks.glob("*/model.safetensors"))]
    names = {"builtin": "builtin", **{each.name: str(each) for each in folders}}
    if asked.only:
        names = {name: place for name, place in names.items() if name in asked.only.split(",")}
    script = str(Path(__file__).with_name("beyond.py"))
    running = []
    for name, place in names.items():
        for task in asked.tasks.split(","):
            for part in range(asked.parts):
                out = asked.out / f"{name}-{task}-{part}.jsonl"
                command = [sys.executable, script, "--model", place, "--name", name, "--task", task]
                command += [
                    "--list",
                    asked.list,
                    "--part",
                    str(part),
                    "--parts",
                    str(asked.parts),
                    "--seconds",
                    str(asked.seconds),
                ]
                running.append(subprocess.Popen([*command, "--out", str(out), *rest]))
    for each in running:
        each.wait()
    lines = {file.name: len(file.read_text().splitlines()) for file in sorted(asked.out.glob("*.jsonl"))}
    print(lines, flush=True)


if __name__ == "__main__":
    main()
