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

/** One streamed request: its drafts are shown, its trace is returned. */
async function decode(path, body, label, signal) {
  const box = make("div", { className: "text draft" });
  const card = make("article", { className: "card", "aria-label": `${label}, decoding` }, make("header", {}, make("h2", {}, label)), box);
  $("stage").hidden = false;
  $("cards").append(card);
  try {
    for await (const event of events(path, body, signal)) {
      const choice = event.choices?.[0] ?? event;
      if (choice.softdlm?.trace) return choice.softdlm.trace;
      box.textContent = choice.delta?.content ?? event.text ?? "";
      $("status").textContent = `${label}: ${Math.round((event.diffusion_meta?.diffusion_progress ?? 0) * 100)} % committed`;
    }
  } finally {
    card.remove();
  }
  throw new Error(`${label}: the server ended the stream without an answer`);
}

/** Methods one after another, so that their seconds can be compared. */
async function run() {
  if (running || !form.prompt.trim()) return;
  const [words, methods] = [form.prompt, form.methods];
  const controller = new AbortController();
  const done = [];
  busy(controller);
  complain("");
  stage.show([]);
  question = $("question").textContent = words;
  $("parting").replaceChildren();
  try {
    for (const method of methods) {
      $("status").textContent = `${method.label}: waiting`;
      const messages = [{ role: "user", content: words }];
      const body = { messages, stream: true, softdlm: { ...method.words, trace: true, diffusing: true } };
      const trace = await decode("v1/chat/completions", body, method.label, controller.signal);
      done.push({ label: method.label, trace: readTrace(trace) });
      stage.show(done, { question: words });
    }
    tell(`${done.length} methods decoded, ${stage.most} passes at most.`);
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
    if (!done.length) stage.show([]);
  } finally {
    busy(null);
  }
}

async function edit(card, index) {
  const asked = running ? null : await askToken(card, index);
  if (!asked) { card.text.focus(); return; }
  const { trace } = card;
  const pass = Math.min(card.pass, trace.count);
  const word = asked.token === null ? "reopened" : `“${shown(typeof asked.token === "string" ? asked.token : trace.text(trace.ids.indexOf(asked.token))).trim()}”`;
  const label = `${card.label}, position ${index + 1} ${word} after pass ${pass}`;
  const controller = new AbortController();
  busy(controller);
  complain("");
  await attempt(async () => {
    const data = await decode("v1/denoise", branch(card, index, asked.token), label, controller.signal);
    stage.add({ label, edited: index, trace: readTrace(data, trace.begin) });
    const added = stage.cards.at(-1);
    added.text.focus();
    added.element.scrollIntoView({ block: "nearest" });
    tell(`${label}: decoded in ${added.trace.count} passes.`);
  });
  busy(null);
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
