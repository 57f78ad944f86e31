"""The routes: from a request to its answer."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from softdlm.engine.answer import Answer
from softdlm.errors import SoftDLMError, TokenizerError
from softdlm.serve.asked import Border, Wanted, logprobs_asked
from softdlm.serve.bodies import Call, body, denoised
from softdlm.serve.engine_thread import Kind, Load, listen
from softdlm.serve.events import event_stream, events
from softdlm.serve.guards import Guard, refused
from softdlm.serve.metrics import Metrics
from softdlm.serve.page_routes import add_page
from softdlm.serve.refusals import Refusal, refusal_of
from softdlm.serve.settings import Limits
from softdlm.serve.tickets import Ticket
from softdlm.serve.wire import ChatRequest, Common, CompletionRequest, DenoiseRequest
from softdlm.serve.wire_out import (
    ChatCompletion,
    Completion,
    Denoised,
    ErrorResponse,
    Health,
    ModelCard,
    ModelList,
    Version,
)
from softdlm.serve.worker import WHY_NOT, Worker
from softdlm.version import __version__

CLIENT_GONE = 499
"""The status of a response that nobody reads, as nginx logs it."""


def may_fail(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorResponse} for status in statuses}


GUARDED = may_fail(401, 403, 408, 413)
ANSWERS: Any = {"responses": {**GUARDED, **may_fail(400, 404, 429, 500, 503, 504)}}


@dataclass
class Service:
    """One served model: its names, its worker, its border."""

    names: Sequence[str]
    limits: Limits
    worker: Worker
    metrics: Metrics
    started: int = field(default_factory=lambda: int(time.time()))
    tokenizing: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "softdlm-tokenizer"))
    _border: Border | None = None

    @property
    def border(self) -> Border:
        """It has a tokenizer of its own: the engine's thread uses the model's."""
        model = self.worker.model
        if self._border is None:
            front = copy.copy(model)
            front.tokenizer = copy.deepcopy(model.tokenizer)
            self._border = Border(front, self.limits)
        return self._border

    def check_name(self, name: str | None) -> str:
        if name is not None and name not in self.names:
            message = f"the model {name!r} is not served here; /v1/models lists {', '.join(self.names)}"
            raise Refusal(404, message, code="model_not_found", param="model")
        return name or self.names[0]

    async def wanted(self, work: Callable[[Any], Any], request: Any) -> Any:
        """Check and tokenize on a thread of its own: a long text holds nobody up."""
        return await asyncio.get_running_loop().run_in_executor(self.tokenizing, work, request)

    async def submit(self, call: Callable[[Sequence[Ticket]], Call], wanted: Sequence[Wanted], **how: Any) -> Call:
        """Tickets for these answers, accepted by the engine."""
        bell, now = asyncio.Event(), self.worker.thread.clock()
        made = [self._ticket(each, bell, now, **how) for each in wanted]
        found = call(made)
        try:
            await self.worker.submit(made)
        except asyncio.CancelledError:
            self.worker.cancel(made)
            raise
        return found

    def _ticket(
        self, wanted: Wanted, bell: asyncio.Event, now: float, *, name: str, text: bool = False, drafts: bool = False,
        trace: bool = False, alternatives: bool = False,
    ) -> Ticket:  # fmt: skip
        answer = Answer(
            self.worker.model, wanted.number, wanted.prompt_ids, wanted.decoding, record_candidates=trace,
            given=wanted.given, alternatives=alternatives,
        )  # fmt: skip
        ticket = Ticket(answer, name, bell, now, now + self.limits.deadline)
        listen(ticket, self.worker.thread.tell, text, drafts)
        return ticket

    async def respond(self, request: Request, call: Call, stream: bool, whole: Callable[[Call], Any]) -> Response:
        """The answer, streamed or whole; it is given up when the client goes."""
        if stream:
            return event_stream(self._until_gone(call))
        gone = asyncio.ensure_future(_disconnected(request))
        over = asyncio.ensure_future(_all_over(call))
        try:
            await asyncio.wait({gone, over}, return_when=asyncio.FIRST_COMPLETED)
            return JSONResponse(whole(call)) if over.done() else Response(status_code=CLIENT_GONE)
        finally:
            gone.cancel()
            over.cancel()
            self.worker.cancel(call.tickets)

    async def _until_gone(self, call: Call) -> AsyncIterator[bytes]:
        try:
            async for event in events(call):
                yield event
        finally:
            self.worker.cancel(call.tickets)

    def card(self, name: str) -> dict[str, Any]:
        length = self.worker.model.max_length
        card = {"id": name, "object": "model", "created": self.started, "owned_by": "softdlm", "root": self.names[0]}
        return {**card, "parent": None, "max_model_len": length, "permission": []}


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _all_over(call: Call) -> None:
    bell = call.tickets[0].bell
    while not all(ticket.news.over for ticket in call.tickets):
        await bell.wait()
        bell.clear()


def make_app(
    load: Load, names: Sequence[str], limits: Limits = Limits(), *, keys: Sequence[str] = (), local: bool = False,
    engine: Kind = "auto", prefix: str = "softdlm_", metrics_of: type[Metrics] = Metrics, traces: Path | None = None,
    warm: Sequence[int] = (),
) -> FastAPI:  # fmt: skip
    """The application. The model is loaded, and passes for `warm` compiled, while /health says 503."""
    metrics = metrics_of(names[0], prefix)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker = Worker(load, limits, metrics, engine, warm)
        app.state.service = Service(names, limits, worker, metrics)
        worker.start()
        yield
        await worker.stop()
        app.state.service.tokenizing.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(title="softdlm", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(Guard, limits=limits, keys=keys, local=local)
    add_errors(app)
    add_answers(app)
    add_status(app)
    add_page(app, traces)
    without_422(app)
    return app


def add_answers(app: FastAPI) -> None:
    @app.post("/v1/chat/completions", response_model=ChatCompletion, **ANSWERS)
    async def chat(body_: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        service: Service = app.state.service
        return await complete(service, request, body_, "chatcmpl", service.border.chat)

    @app.post("/v1/completions", response_model=Completion, **ANSWERS)
    async def completions(body_: CompletionRequest, request: Request) -> Response:
        """Continue raw text, or token ids; without a chat template."""
        service: Service = app.state.service
        return await complete(service, request, body_, "cmpl", service.border.completion)

    @app.post("/v1/denoise", response_model=Denoised, **ANSWERS)
    async def denoise(body_: DenoiseRequest, request: Request) -> Response:
        """Fill the open positions of a canvas, starting from [MASK]."""
        service: Service = app.state.service
        name, extras = service.check_name(body_.model), dict(body_.extras)
        wanted = await service.wanted(service.border.denoise, body_)
        call = await service.submit(
            lambda tickets: Call(name, "denoise", request.state.name, tickets, extras=extras),
            [wanted], name=request.state.name, drafts=bool(body_.stream), trace=extras["trace"],
        )  # fmt: skip
        return await service.respond(request, call, bool(body_.stream), denoised)


async def complete(
    service: Service, request: Request, asked: Common, prefix: str, work: Callable[[Any], list[Wanted]]
) -> Response:
    """Both of OpenAI's routes."""
    name, stream, extras = service.check_name(asked.model), bool(asked.stream), dict(asked.extras)
    if service.worker.model.tokenizer is None:
        raise TokenizerError(f"{name} has no tokenizer: use /v1/denoise with token ids")
    wanted = await service.wanted(work, asked)
    options, logprobs = asked.stream_options, logprobs_asked(asked)
    call = await service.submit(
        lambda tickets: Call(
            name, prefix, request.state.name, tickets, logprobs, extras,
            usage_at_end=bool(options and options.include_usage),
            usage_always=bool(options and options.continuous_usage_stats),
        ),
        wanted, name=request.state.name, text=stream and not extras["diffusing"], drafts=extras["diffusing"],
        trace=extras["trace"], alternatives=bool(logprobs),
    )  # fmt: skip
    return await service.respond(request, call, stream, body)


def add_status(app: FastAPI) -> None:
    @app.get("/v1/models", response_model=ModelList, responses={**GUARDED, **may_fail(503)})
    async def models() -> Any:
        """The models that are served: one, under its names."""
        service: Service = app.state.service
        return {"object": "list", "data": [service.card(name) for name in service.names]}

    @app.get("/v1/models/{model:path}", response_model=ModelCard, responses={**GUARDED, **may_fail(404, 503)})
    async def model_card(model: str) -> Any:
        service: Service = app.state.service
        return service.card(service.check_name(model))

    @app.get("/health", response_model=Health, responses={503: {"model": Health}})
    async def health() -> Response:
        """200 when requests are answered; 503 while loading, while draining and after the device failed."""
        state = app.state.service.worker.state
        return JSONResponse({"status": state, "reason": WHY_NOT.get(state)}, 200 if state == "ready" else 503)

    @app.get("/metrics", response_class=Response, responses={**GUARDED, 200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Counts for Prometheus."""
        text = await asyncio.to_thread(app.state.service.metrics.text)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/version", response_model=Version, responses=GUARDED)
    async def version() -> Any:
        return {"version": __version__}


def add_errors(app: FastAPI) -> None:
    """Every error is OpenAI's error object."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refused(refusal_of_body(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        words = {404: f"there is no {request.url.path} here; /openapi.json lists the routes",
                 405: f"{request.method} is not for {request.url.path}"}  # fmt: skip
        return refused(Refusal(error.status_code, words.get(error.status_code, str(error.detail))))

    async def ours(request: Request, error: Exception) -> Response:
        return refused(refusal_of(error, request.state.name))

    app.add_exception_handler(Refusal, ours)
    app.add_exception_handler(SoftDLMError, ours)
    app.add_exception_handler(Exception, ours)


def refusal_of_body(error: RequestValidationError) -> Refusal:
    """The first thing that is wrong with a body, in one line."""
    first = error.errors()[0]
    place = [str(each) for each in first["loc"] if each != "body"]
    if first["type"] == "json_invalid":
        return Refusal(400, f"the body is not JSON: {first.get('ctx', {}).get('error', first['msg'])}")
    names = [each for each in place if each.isidentifier() or each.isdigit()]
    says = "unknown field" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Value error, ")
    where = ".".join(names)
    return Refusal(400, f"{where or 'the body'}: {says}", param=where or None)


def without_422(app: FastAPI) -> None:
    """FastAPI documents 422 for a body that does not fit; here that is 400."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        schema = made()
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
