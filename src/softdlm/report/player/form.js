// The question: a prompt, two to four methods, and what they share.

import { $, make } from "./dom.js";
import { labelOf } from "./files.js";

const MOST = 4;

export class Form {
  /** `settings`: what the server says of its model, with the presets. */
  constructor(settings, onRun) {
    this.settings = settings;
    this.rows = [];
    $("length").placeholder = settings.max_new_tokens;
    $("prompt").placeholder = "Ask something";
    $("add").addEventListener("click", () => this.add(settings.presets[this.rows.length % settings.presets.length]));
    $("ask").addEventListener("submit", (event) => { event.preventDefault(); onRun(); });
    $("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("ask").requestSubmit();
    });
    for (const [id, names] of Object.entries({ feedbacks: settings.feedback, commits: settings.commit })) {
      $("methods").after(make("datalist", { id }, ...names.map((value) => make("option", { value }))));
    }
    for (const name of settings.shown) this.add(settings.presets.find((each) => each.name === name));
    $("ask").hidden = false;
  }

  add(preset) {
    if (this.rows.length >= MOST) return;
    const number = this.rows.length + 1;
    const choice = make("select", { "aria-label": `Method ${number}` },
      ...this.settings.presets.map(({ name }) => make("option", { value: name }, name)), make("option", { value: "" }, "Own spelling"));
    const feedback = make("input", { type: "text", "aria-label": `Feedback rule of method ${number}`, placeholder: "feedback: the model's own", autocomplete: "off", spellcheck: false });
    const commit = make("input", { type: "text", "aria-label": `Commit rule of method ${number}`, placeholder: "commit: the model's own", autocomplete: "off", spellcheck: false });
    feedback.setAttribute("list", "feedbacks");
    commit.setAttribute("list", "commits");
    const away = make("button", { type: "button", "aria-label": `Remove method ${number}`, title: "Remove" }, "×");
    const row = { choice, feedback, commit, element: make("div", { className: "method" }, choice, feedback, commit, away) };
    const fill = ({ name, feedback: rule, commit: rate }) => { choice.value = name; feedback.value = rule; commit.value = rate; };
    fill(preset);
    choice.addEventListener("change", () => {
      const chosen = this.settings.presets.find((each) => each.name === choice.value);
      if (chosen) fill(chosen); else feedback.focus();
    });
    for (const field of [feedback, commit]) field.addEventListener("input", () => this.rename(row));
    away.addEventListener("click", () => { this.rows = this.rows.filter((each) => each !== row); row.element.remove(); this.settle(); $("add").focus(); });
    this.rows.push(row);
    $("methods").append(row.element);
    this.settle();
  }

  /** A preset keeps its name while its feedback rule is what the preset says. */
  rename(row) {
    const same = this.settings.presets.find((each) => each.name === row.choice.value && each.feedback === row.feedback.value.trim());
    if (!same) row.choice.value = "";
  }

  settle() {
    $("add").hidden = this.rows.length >= MOST;
    for (const row of this.rows) row.element.lastElementChild.disabled = this.rows.length === 1;
  }

  get prompt() { return $("prompt").value; }

  /** The methods as requests: a label, and fields of a Decoding. */
  get methods() {
    const shared = this.shared;
    return this.rows.map(({ choice, feedback, commit }) => {
      const words = { ...shared };
      if (feedback.value.trim()) words.feedback = feedback.value.trim();
      if (commit.value.trim()) words.commit = commit.value.trim();
      return { label: choice.value || labelOf(words.feedback), words };
    });
  }

  get shared() {
    const found = { candidates: 5 };
    for (const [id, name] of Object.entries({ length: "max_new_tokens", block: "block_length", temperature: "temperature", seed: "seed" })) {
      if ($(id).value !== "") found[name] = Number($(id).value);
    }
    return found;
  }
}
