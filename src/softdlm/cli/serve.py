"""`softdlm serve`: an OpenAI-compatible server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from softdlm.cli.option_tables import LOADING, takes
from softdlm.cli.options import Model, load_model, loading_values, option
from softdlm.errors import UsageError

Keys = Annotated[
    list[str] | None,
    typer.Option("--api-key", envvar="SOFTDLM_API_KEY", help="Key that clients must send; may be repeated."),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--served-model-name", help="What clients call the model; may be repeated. Default: its own name."),
]
Rules = Annotated[
    list[Path] | None, typer.Option("--rules", help="File with rules that requests may name; may be repeated.")
]
WARM_HELP = "Length of prompt and answer together, in tokens, for which a GPU's passes are compiled before the server "
WARM_HELP += "is ready; may be repeated. Without it: once requests have come back to them often enough."
PREFIX_HELP = "Start of the metrics' names; vllm: suits existing dashboards."
TRACES_HELP = "Folder whose traces the page can show, as /?trace=traces/NAME.json."
Warm = Annotated[list[int] | None, typer.Option("--warm", help=WARM_HELP)]
REPLICAS_HELP = "With --executor ray: this many engines, each with a GPU where there are GPUs."


@takes(loading=LOADING)
def serve(
    loading: dict[str, Any],
    model: Model = "builtin",
    host: Annotated[str, option("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, option("Port to listen on; 0 is any free one.")] = 8000,
    api_key: Keys = None,
    served_model_name: Names = None,
    max_concurrency: Annotated[int, option("Answers of one decoding that share passes.")] = 16,
    queue: Annotated[int, option("Further answers that are held; beyond that, 429.")] = 64,
    max_new_tokens: Annotated[int, option("The longest answer that a request may ask for.")] = 1024,
    deadline: Annotated[float, option("Seconds after which an answer ends with what it has.")] = 600.0,
    shutdown_timeout: Annotated[float, option("Seconds to finish accepted requests after SIGTERM.")] = 30.0,
    rules: Rules = None,
    warm: Warm = None,
    metrics_prefix: Annotated[str, option(PREFIX_HELP)] = "softdlm_",
    traces: Annotated[Path | None, option(TRACES_HELP)] = None,
    executor: Annotated[str, option("local, or ray for a cluster.")] = "local",
    replicas: Annotated[int, option(REPLICAS_HELP)] = 1,
) -> None:
    """Serve a model over HTTP, as OpenAI's interface has it, with a decoding per request."""
    try:
        from softdlm.serve.run import check_options, serve, served_name
        from softdlm.serve.settings import Limits
    except ImportError as error:
        raise UsageError(f"the server needs FastAPI and uvicorn: pip install 'softdlm[serve]' ({error})") from error
    limits = Limits(max_concurrency, queue, max_new_tokens, deadline, shutdown_timeout)
    options = check_options(host, port, api_key or (), loading.get("engine", "auto"), metrics_prefix, warm or ())
    if traces is not None and not (traces.is_dir() and executor == "local"):
        raise UsageError(f"--traces {traces} must be a folder, and goes with --executor local")
    names = served_model_name or [served_name(model)]
    if executor == "ray":
        from softdlm.serve.cluster import serve_on_ray

        serve_on_ray(model, loading_values(loading), names, limits, replicas, rules or (), **options)
        return
    if executor != "local" or replicas != 1:
        raise UsageError(f"--executor {executor} with --replicas {replicas}: several replicas need --executor ray")
    from softdlm.serve.rules import offer_rules

    for file in rules or ():
        offer_rules(file)
    serve(lambda: load_model(model, loading), names, limits, traces=traces, **options)
