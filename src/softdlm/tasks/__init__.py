"""Generated, seeded, held-out tasks: mini-math, mini-code and the paper's either-or prompts."""

from softdlm.tasks.load import TASKS, load_task, official_size, runs_code, training_stream
from softdlm.tasks.task import Item, Task

__all__ = ["TASKS", "Item", "Task", "load_task", "official_size", "runs_code", "training_stream"]
