// The page: as it is served, with a form; as it is saved, with its traces inside.

import { isDark } from "./colours.js";
import { $, complain, make, shown, tell } from "./dom.js";
import { askToken, branch } from "./edit.js";
import { download, linked, packed, readFiles, readSaved, savePage } from "./files.js";
import { Form } from "./form.js";
import { ask, events } from "./server.js";
import { Stage } from "./stage.js";
import { readTrace } from "./trace.js";

const inside = $("traces"); // a saved page has its data in itself
const stage = new Stage(inside ? null : edit);
let form = null;
let running = null;
let question = "";

function showTheme() {
  $("theme").setAttribute("aria-pressed", String(isDark()));
}

function turnTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
  stage.refresh();
}

function show(saved) {
  complain("");
  question = saved.question;
  stage.show(saved.methods, saved);
  if (saved.title) document.title = `${saved.title} · softdlm`;
}

async function attempt(work) {
  try { await work(); } catch (error) { if (error.name !== "AbortError") complain(error.message); }
}

function busy(controller) {
  running = controller;
  $("run").disabled = Boolean(controller);
  $("stop").hidden = !controller;
  if (!controller) $("status").textContent = "";
}

/** A place for an answer that is not there yet. */
function place(label) {
  const box = make("div", { className: "text draft" });
  const head = make("header", {}, make("h3", {}, label));
  return { box, label, element: make("article", { className: "card pending", "aria-label": `${label}, not decoded yet` }, head, box) };
}

/** One streamed request: its drafts are shown in their place, its trace is returned. */
async function decode(path, body, { box, label }, signal) {
  $("status").textContent = `${label}: waiting`;
  for await (const event of events(path, body, signal)) {
    const choice = event.choices?.[0] ?? event;
    if (choice.softdlm?.trace) return choice.softdlm.trace;
    box.textContent = choice.delta?.content ?? event.text ?? "";
    $("status").textContent = `${label}: ${Math.round((event.diffusion_meta?.diffusion_progress ?? 0) * 100)} % committed`;
  }
  throw new Error(`${label}: the server ended the stream without an answer`);
}

/** Work that fills the pending places of the stage, until it is done or stopped. */
async function fill(places, work) {
  const controller = new AbortController();
  busy(controller);
  complain("");
  stage.pending = places;
  stage.settle();
  await attempt(() => work(controller.signal));
  stage.pending = [];
  stage.settle();
  if (stage.cards.length) stage.goto(stage.pass);
  busy(null);
}

/** Methods one after another, so that their seconds can be compared. */
async function run() {
  if (running || !form.prompt.trim()) return;
  const [words, methods] = [form.prompt, form.methods];
  const places = methods.map(({ label }) => place(label));
  const done = [];
  stage.show([], { question: words });
  question = words;
  await fill(places, async (signal) => {
    for (const [index, method] of methods.entries()) {
      const messages = [{ role: "user", content: words }];
      const body = { messages, stream: true, softdlm: { ...method.words, trace: true, diffusing: true } };
      const trace = await decode("v1/chat/completions", body, places[index], signal);
      done.push({ label: method.label, trace: readTrace(trace) });
      stage.pending = places.slice(index + 1);
      stage.show(done, { question: words });
    }
    tell(`${done.length} methods decoded, ${stage.most} passes at most.`);
  });
}

async function edit(card, index) {
  const asked = running ? null : await askToken(card, index);
  if (!asked) { card.text.focus(); return; }
  const { trace } = card;
  const pass = Math.min(card.pass, trace.count);
  const word = asked.token === null ? "reopened" : `“${shown(typeof asked.token === "string" ? asked.token : trace.text(trace.ids.indexOf(asked.token))).trim()}”`;
  const label = `${card.label}, position ${index + 1} ${word} after pass ${pass}`;
  const here = place(label);
  await fill([here], async (signal) => {
    const data = await decode("v1/denoise", branch(card, index, asked.token), here, signal);
    stage.pending = [];
    stage.add({ label, edited: index, trace: readTrace(data, trace.begin) });
    const added = stage.cards.at(-1);
    added.element.scrollIntoView({ block: "nearest" });
    added.text.focus({ preventScroll: true });
    tell(`${label}: decoded in ${added.trace.count} passes.`);
  });
}

/** The page as the server gives it. */
async function begin() {
  const settings = await (await ask("page/settings.json")).json();
  $("model").textContent = settings.model;
  form = new Form(settings, run);
  $("stop").addEventListener("click", () => running?.abort());
  $("mayedit").hidden = false;
  const address = new URLSearchParams(location.search).get("trace");
  if (address === null) { $("prompt").focus(); return; }
  const answer = await ask(linked(address));
  let data;
  try { data = await answer.json(); } catch (error) { throw new Error(`?trace=${address} is not JSON`, { cause: error }); }
  show(readSaved(data));
}

$("theme").addEventListener("click", turnTheme);
$("open").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => attempt(async () => {
  if ($("file").files.length) show(await readFiles([...$("file").files]));
  $("file").value = "";
}));
$("save").addEventListener("click", () => attempt(() => savePage(packed(stage, question, $("note").textContent))));
$("savedata").addEventListener("click", () => download("softdlm-trace.json", JSON.stringify(packed(stage, question, $("note").textContent)), "application/json"));
showTheme();
attempt(async () => {
  if (!inside) { await begin(); return; }
  $("save").remove();
  const saved = JSON.parse(inside.textContent);
  $("model").textContent = saved.methods[0]?.trace.model ?? "";
  show(readSaved(saved));
});
