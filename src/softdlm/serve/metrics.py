"""Counts for Prometheus: our prefix with vLLM's names, so that existing dashboards need one word changed."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from softdlm.serve.refusals import Refusal
from softdlm.serve.tickets import Ticket

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)


class Metrics:
    """One set of metrics for one server; `prefix` may be `vllm:`."""

    def __init__(self, model_name: str, prefix: str = "softdlm_") -> None:
        self.registry = CollectorRegistry()
        self.prefix, self.model_name = prefix, model_name
        self.running = self._gauge("num_requests_running", "Answers that are decoded now.")
        self.waiting = self._gauge("num_requests_waiting", "Answers that wait.")
        self.memory = self._gauge("kv_cache_usage_perc", "Share of the engine's memory that is in use, from 0 to 1.")
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens of answers, up to EOS.")
        self.steps = self._counter("diffusion_num_denoising_steps", "Forward passes, counted once for each answer.")
        self.positions = self._counter("diffusion_num_canvas_positions", "Open or committed positions of these passes.")
        self.committed = self._counter("diffusion_num_committed_tokens", "Tokens that were committed.")
        self.success = self._counter("request_success", "Answers that ended well.", "finished_reason")
        self.failed = self._counter("request_failure", "Answers that ended with an error.", "code")
        self.rejected = self._counter("request_rejected", "Answers that were never accepted.", "code")
        self.first_text = self._seconds("time_to_first_token_seconds", "From arrival to the first text.")
        self.whole = self._seconds("e2e_request_latency_seconds", "From arrival to the end.")
        self.queued = self._seconds("request_queue_time_seconds", "From arrival to the first pass.")
        self.inference = self._seconds("request_inference_time_seconds", "From the first pass to the end.")
        self.per_token = self._seconds("request_time_per_output_token_seconds", "Decoding time over tokens.")
        self.prompt_sizes = self._histogram("request_prompt_tokens", "Tokens of a prompt.", COUNTS)
        self.answer_sizes = self._histogram("request_generation_tokens", "Tokens of an answer.", COUNTS)
        self.canvas_sizes = self._histogram("request_params_max_tokens", "Length of an answer's canvas.", COUNTS)
        self.passes = self._histogram("request_passes", "Forward passes of an answer.", COUNTS)

    def load(self, running: int, waiting: int, memory: float) -> None:
        self.running.set(running)
        self.waiting.set(waiting)
        self.memory.set(memory)

    def answer(self, ticket: Ticket) -> None:
        """An answer is over."""
        made, ended = ticket.answer.generation, ticket.ended or ticket.arrived
        began = ticket.began or ended
        if ticket.refusal is not None or made is None:
            self.refuse(self.failed, ticket.refusal)
        else:
            self.success.labels(self.model_name, made.finish_reason).inc()
            self.whole.observe(ended - ticket.arrived)
            self.queued.observe(began - ticket.arrived)
            self.inference.observe(ended - began)
            self.first_text.observe((ticket.first_text or ended) - ticket.arrived)
            self.per_token.observe((ended - began) / max(len(made.ids), 1))
            self.answer_sizes.observe(len(made.ids))
            self.passes.observe(made.forwards)
        self._count(ticket)

    def refuse(self, counter: Counter, refusal: Refusal | None, answers: int = 1) -> None:
        """Count answers that were rejected or that failed."""
        counter.labels(self.model_name, (refusal and refusal.code) or "error").inc(answers)

    def _count(self, ticket: Ticket) -> None:
        """What was computed, also for answers that nobody waited for."""
        answer, made = ticket.answer, ticket.answer.generation
        self.prompt_tokens.inc(answer.given_tokens)
        self.prompt_sizes.observe(answer.given_tokens)
        self.canvas_sizes.observe(answer.max_new_tokens)
        if made is not None:
            self.generation_tokens.inc(len(made.ids))
            self.steps.inc(made.forwards)
            self.positions.inc(made.forwards * answer.length)
            self.committed.inc(sum(len(each.positions) for each in made.trace.passes))

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        made = Counter(self.prefix + name, about, ["model_name", *labels], registry=self.registry)
        return made if labels else made.labels(model_name=self.model_name)

    def _gauge(self, name: str, about: str) -> Gauge:
        made = Gauge(self.prefix + name, about, ["model_name"], registry=self.registry)
        return made.labels(model_name=self.model_name)

    def _seconds(self, name: str, about: str) -> Histogram:
        return self._histogram(name, about, SECONDS)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(self.prefix + name, about, ["model_name"], buckets=buckets, registry=self.registry)
        return made.labels(model_name=self.model_name)
