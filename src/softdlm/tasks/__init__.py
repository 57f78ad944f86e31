"""Built-in tasks, generated from seeds: mini-math, mini-code and either-or (the paper's prompts)."""

from softdlm.tasks.load import TASKS, load_task, official_size, runs_code, training_stream
from softdlm.tasks.task import Item, Task

__all__ = ["TASKS", "Item", "Task", "load_task", "official_size", "runs_code", "training_stream"]
