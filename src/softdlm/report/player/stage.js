// The answers side by side: one pass, one position and one scale of colours for all of them.

import { Card } from "./card.js";
import { palette, ramp } from "./colours.js";
import { $, make, percent, shown, tell } from "./dom.js";
import { firstDifference } from "./trace.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Stage {
  constructor(onEdit) {
    this.onEdit = onEdit; // null: tokens cannot be changed here
    this.cards = [];
    this.pending = []; // places of answers that are not there yet
    this.pass = this.most = 0;
    this.pinned = this.place = this.parts = null;
    this.colourBy = "pass";
    this.playing = null;
    this.takeColours();
    $("pass").addEventListener("input", () => { this.pause(); this.goto(Number($("pass").value)); });
    $("play").addEventListener("click", () => this.toggle());
    $("back").addEventListener("click", () => this.step(-1));
    $("on").addEventListener("click", () => this.step(1));
    for (const each of document.querySelectorAll("input[name=colour]")) {
      each.addEventListener("change", () => { this.colourBy = each.value; this.refresh(); });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.refresh());
    new ResizeObserver(() => { if (this.cards.length) this.refresh(); }).observe($("cards"));
    if (calm.matches) $("speed").value = "2";
  }

  takeColours() {
    const style = getComputedStyle(document.documentElement);
    this.inks = Object.fromEntries(["ink", "card", "parts", "focus"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    this.palette = palette();
    $("ramp").style.background = ramp();
  }

  /** Show these methods: [{label, trace, edited}]. */
  show(methods, { question = "", note = "" } = {}) {
    this.pause();
    $("question").textContent = question;
    $("note").textContent = note;
    $("note").hidden = !note;
    this.cards = methods.map((method) => new Card(this, method));
    this.place = this.pinned = null;
    this.settle();
    this.goto(this.most);
  }

  add(method) {
    this.cards.push(new Card(this, method));
    this.settle();
    this.goto(this.pass);
  }

  remove(card) {
    this.cards = this.cards.filter((each) => each !== card);
    this.settle();
    if (this.cards.length) this.goto(Math.min(this.pass, this.most));
    $("stage").focus();
  }

  /** After the set of methods has changed. */
  settle() {
    const traces = this.cards.map((card) => card.trace);
    this.most = Math.max(0, ...traces.map((trace) => trace.count));
    this.parts = traces.length > 1 ? firstDifference(traces) : null;
    for (const each of ["save", "savedata"].map($)) if (each) each.hidden = !traces.length;
    $("stage").hidden = !traces.length && !this.pending.length;
    $("stage").classList.toggle("empty", !traces.length);
    $("cards").replaceChildren(...this.cards.map((card) => card.element), ...this.pending.map((each) => each.element));
    $("pass").max = this.most;
    this.tellParting();
    if (traces.length && this.pinned === null) this.place = this.pinned = this.cards.flatMap((card) => card.wrongs)[0]?.place ?? this.parts ?? 0;
    this.refresh();
  }

  tellParting() {
    const box = $("parting");
    if (this.cards.length < 2) { box.replaceChildren(); return; }
    if (this.parts === null) { box.replaceChildren("All answers are the same."); return; }
    const traces = this.cards.map((card) => card.trace);
    const said = traces.map((trace) => this.parts < trace.end - trace.begin ? `“${shown(trace.text(trace.final[trace.begin + this.parts])).trim() || "␣"}”` : "∎ end");
    const first = Math.min(...traces.map((trace) => trace.committed[trace.begin + this.parts]).filter((pass) => pass > 0), this.most);
    const go = make("button", { type: "button" }, `Go to pass ${first}`);
    go.addEventListener("click", () => { this.pause(); this.pin(this.parts); this.goto(first); });
    box.replaceChildren("Answers first differ at ", make("b", {}, `position ${this.parts + 1}`), `: ${said.join(", ")}.`, go);
  }

  refresh() {
    this.takeColours();
    $("least").textContent = this.colourBy === "pass" ? "pass 1" : "0 %";
    $("most").textContent = this.colourBy === "pass" ? `${this.most}` : "100 %";
    for (const card of this.cards) { card.refresh(); if (card.pass !== undefined) card.draw(this.pass); }
  }

  goto(pass) {
    this.pass = Math.min(Math.max(pass, 0), this.most);
    $("pass").value = this.pass;
    $("pass").setAttribute("aria-valuetext", `pass ${this.pass} of ${this.most}`);
    $("at").textContent = `pass ${this.pass} of ${this.most}`;
    for (const card of this.cards) card.draw(this.pass);
  }

  step(by, card = null) {
    this.pause();
    this.goto(this.pass + by);
    if (card) tell(`Pass ${this.pass}. ${card.says(this.pinned ?? 0)}`);
  }

  toggle() { if (this.playing === null) this.play(); else this.pause(); }

  play() {
    if (!this.most) return;
    if (this.pass >= this.most) this.goto(0);
    this.face(true);
    let began = null;
    const from = this.pass;
    const tick = (now) => {
      began ??= now;
      const due = from + Math.floor((now - began) / 1000 * Number($("speed").value));
      if (due > this.pass) this.goto(due);
      if (this.pass >= this.most) { this.pause(); return; }
      this.playing = requestAnimationFrame(tick);
    };
    this.playing = requestAnimationFrame(tick);
  }

  pause() {
    if (this.playing !== null) cancelAnimationFrame(this.playing);
    this.playing = null;
    this.face(false);
  }

  face(playing) {
    $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
    $("play").firstElementChild.textContent = playing ? "❚❚" : "▶";
  }

  /** Look at a position while the pointer is on it; null: back to the one that was chosen. */
  point(index) {
    const before = this.place;
    this.place = index ?? this.pinned;
    if (this.place === before) return;
    for (const card of this.cards) card.point(before, this.place);
  }

  /** Choose a position; with the keyboard it is spoken. */
  pin(index, card = null, speak = false) {
    const before = this.pinned;
    this.pinned = index;
    this.point(index);
    for (const each of this.cards) {
      const cell = each.activate(before, index);
      each.point(null, index);
      if (speak && each === card) { cell?.scrollIntoView({ block: "nearest" }); tell(each.says(index)); }
    }
  }

  edit(card, index) {
    if (!this.onEdit) return;
    this.pause();
    this.pin(index, card);
    this.onEdit(card, index);
  }
}
