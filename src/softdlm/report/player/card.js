// One method: its name and counts, its text as it stands after a pass, its heat map, and one position looked at.

import { make, shown } from "./dom.js";
import { Heat } from "./heat.js";
import { look, stateOf, wordOf } from "./look.js";
import { best, textOf } from "./trace.js";
import { Ruler } from "./width.js";

const CLOSED = 1, NEW = 2, GIVEN = 4, SOFT = 8, FALSE = 16;
const LEAST_ROOM = 0.3; // em
let made = 0;

export class Card {
  constructor(stage, method) {
    this.stage = stage;
    this.label = method.label;
    this.edited = method.edited ?? null; // the position that somebody changed
    this.trace = method.trace;
    this.name = `card${made++}`;
    const { trace } = this;
    this.wrongs = wrongsOf(trace);
    this.closing = closingPasses(this.wrongs, trace.length - trace.begin);
    this.heat = new Heat(trace, (index) => stage.point(index), ({ index, pass }) => { stage.goto(pass); stage.pin(index, this); });
    this.box = make("div", { className: "look" });
    this.box.style.setProperty("--rows", Math.max(trace.k, 1)); // as high as it gets: nothing moves while pointing
    this.cells = [];
    this.text = this.makeText();
    this.element = make("article", { className: "card", "aria-labelledby": `${this.name}-name` },
      this.makeHead(), this.makeStats(), this.text, this.heat.element, this.box);
    const size = this.cells.length;
    this.had = { token: new Int32Array(size).fill(-9), state: new Int32Array(size).fill(-1), shade: new Int32Array(size).fill(-9) };
  }

  makeHead() {
    const away = make("button", { type: "button", title: "Remove", "aria-label": `Remove ${this.label}` }, "×");
    away.addEventListener("click", () => this.stage.remove(this));
    const { commit = "", feedback = "" } = this.trace.data.method;
    const rules = make("dl", { className: "rules" }, make("dt", {}, "feedback"), make("dd", {}, feedback), make("dt", {}, "commit"), make("dd", {}, commit.replace(", rank='confidence'", "")));
    return make("header", {}, make("h3", { id: `${this.name}-name` }, this.label), away, rules);
  }

  makeStats() {
    const { trace } = this;
    const tokens = trace.end - trace.begin;
    const pair = (value, name) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
    return make("div", { className: "facts" }, make("dl", { className: "stats" },
      pair(`${trace.count}`, trace.count === 1 ? "pass" : "passes"),
      pair(`${tokens}`, tokens === 1 ? "token" : "tokens"),
      pair((tokens / Math.max(trace.count, 1)).toFixed(2), "tokens a pass"),
      trace.seconds === null ? null : pair(trace.seconds.toFixed(2), "s")),
    ...this.verdicts());
  }

  /** Whether the answer is right and its equations true, as far as that is known; a false one leads to where it is. */
  verdicts() {
    const { trace, wrongs, stage } = this;
    const { right, target } = trace.data;
    const lines = [];
    const say = (good, ...parts) => lines.push(make("p", { className: good ? "verdict good" : "verdict bad" }, ...parts));
    if (right !== null) say(right, right ? "✓ right answer" : `✗ wrong answer${target ? `, expected ${target}` : ""}`);
    const links = wrongs.map(({ text, place, pass }) => {
      const link = make("button", { type: "button", title: `Closed in pass ${pass}: go there` }, text);
      link.addEventListener("click", () => { stage.pause(); stage.pin(place, this); stage.goto(pass); });
      return link;
    });
    const told = trace.marks.filter((mark) => mark.last >= trace.begin).length;
    if (links.length) say(false, "✗ false: ", ...links);
    else if (told) say(true, told === 1 ? "✓ 1 true equation" : `✓ ${told} true equations`);
    return lines;
  }

  makeText() {
    const { trace } = this;
    const box = make("div", { className: "text", role: "listbox", tabIndex: 0, "aria-label": `Answer of ${this.label}`, id: `${this.name}-text` });
    const code = /\n( {2}|\t)/.test(textOf(trace, trace.begin, trace.end));
    box.classList.toggle("code", code);
    this.ruler = new Ruler(getComputedStyle(document.documentElement).getPropertyValue(code ? "--mono" : "--text"));
    let line = make("div", { className: "line", role: "presentation" });
    box.append(line);
    for (let at = trace.begin; at < trace.end; at++) {
      const text = trace.text(trace.final[at]);
      if (text.includes("\n") && at > trace.begin) {
        line = make("div", { className: "line", role: "presentation" });
        box.append(line);
      }
      line.append(this.makeCell(shown(text)));
    }
    if (trace.end < trace.length) {
      const tail = make("div", { className: "tail", role: "presentation" });
      for (let at = trace.end; at < trace.length; at++) tail.append(this.makeCell(null));
      box.append(tail);
    }
    this.listen(box);
    return box;
  }

  /** A cell with room for its final text; without one it is a square. */
  makeCell(final) {
    const index = this.cells.length;
    const words = document.createTextNode("");
    const cell = make("span", { className: "token", role: "option", id: `${this.name}-${index}`, "aria-selected": "false" }, words);
    const room = final === null ? 0 : Math.max(this.ruler.of(final), LEAST_ROOM);
    if (final === null) cell.setAttribute("aria-label", "after the end");
    else cell.style.width = `${room}em`;
    cell.dataset.index = index;
    this.cells.push({ cell, words, room });
    return cell;
  }

  listen(box) {
    const { stage } = this;
    const indexOf = (event) => {
      const cell = event.target.closest?.(".token");
      return cell ? Number(cell.dataset.index) : null;
    };
    box.addEventListener("pointerover", (event) => stage.point(indexOf(event)));
    box.addEventListener("pointerleave", () => stage.point(null));
    box.addEventListener("click", (event) => { if (indexOf(event) !== null) stage.pin(indexOf(event), this); });
    box.addEventListener("dblclick", (event) => { if (indexOf(event) !== null) stage.edit(this, indexOf(event)); });
    box.addEventListener("focus", () => stage.pin(stage.pinned ?? 0, this));
    box.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { stage } = this;
    const at = Math.min(stage.pinned ?? 0, this.cells.length - 1);
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: this.cells.length - 1, ArrowDown: this.beside(at, 1), ArrowUp: this.beside(at, -1) };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) stage.pin(Math.min(Math.max(moves[event.key], 0), this.cells.length - 1), this, true);
    else if (event.key === ".") stage.step(1, this);
    else if (event.key === ",") stage.step(-1, this);
    else if (event.key === "Enter") stage.edit(this, at);
    else if (event.key === " ") stage.toggle();
    else return;
    event.preventDefault();
  }

  /** The nearest position in the line above or below. */
  beside(at, way) {
    const from = this.cells[at].cell.getBoundingClientRect();
    let found = at;
    let line = null;
    for (let next = at + way; next >= 0 && next < this.cells.length; next += way) {
      const box = this.cells[next].cell.getBoundingClientRect();
      if ((box.top - from.top) * way < from.height * 0.6) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > from.height * 0.6) break;
      if (found === at || Math.abs(box.left - from.left) < Math.abs(this.cells[found].cell.getBoundingClientRect().left - from.left)) found = next;
    }
    return found;
  }

  /** The colour of a committed position, as a place in the palette. */
  shade(at) {
    const { stage, trace } = this;
    const share = stage.colourBy === "pass" ? (trace.committed[at] - 1) / Math.max(stage.most - 1, 1) : trace.sure[at];
    return Math.round(Math.min(Math.max(share, 0), 1) * (stage.palette.length - 1));
  }

  /** Bring the text to what it is after a pass; only cells that changed are touched. */
  draw(pass) {
    const { trace, had, cells, stage } = this;
    const after = trace.seen[pass];
    for (let index = 0; index < cells.length; index++) {
      const at = trace.begin + index;
      const since = trace.committed[at];
      const closed = since !== 0 && since <= pass;
      const token = closed ? trace.final[at] : best(trace, pass, at);
      let state = since < 0 ? GIVEN : closed ? (since === pass ? CLOSED | NEW : CLOSED) : after && after.soft[at] ? SOFT : 0;
      if (this.closing[index] > 0 && this.closing[index] <= pass) state |= FALSE;
      const shade = closed && since > 0 ? this.shade(at) : -1;
      const { cell } = cells[index];
      if (token !== had.token[index]) this.write(cells[index], this.word(token, at));
      if (state !== had.state[index]) this.dress(cell, state, index);
      if (shade !== had.shade[index]) cell.style.backgroundColor = shade < 0 ? "" : stage.palette[shade];
      had.token[index] = token;
      had.state[index] = state;
      had.shade[index] = shade;
    }
    this.pass = pass;
    this.heat.draw(Math.min(pass, trace.count), stage.place, stage.parts, stage.inks);
    this.look();
  }

  word(token, at) {
    if (at >= this.trace.end) return "";
    if (token < 0) return "·";
    return this.trace.ends.has(token) ? "∎" : shown(this.trace.text(token));
  }

  /** As much of a text as has room. Blanks have a name for screen readers. */
  write({ cell, words, room }, text) {
    if (!room) return;
    words.data = this.ruler.cut(text, room);
    const blank = !words.data.trim();
    if (blank !== cell.hasAttribute("aria-label")) {
      if (blank) cell.setAttribute("aria-label", text.trim() ? text : "space");
      else cell.removeAttribute("aria-label");
    }
  }

  dress(cell, state, index) {
    const { classList } = cell;
    classList.toggle("open", !(state & (CLOSED | GIVEN)));
    classList.toggle("new", Boolean(state & NEW));
    classList.toggle("given", Boolean(state & GIVEN));
    classList.toggle("soft", Boolean(state & SOFT));
    classList.toggle("false", Boolean(state & FALSE));
    classList.toggle("edited", this.edited === index);
    classList.toggle("parts", this.stage.parts === index);
  }

  /** Colours have changed: draw everything again. */
  refresh() {
    const { stage } = this;
    this.had.shade.fill(-9);
    this.had.state.fill(-1);
    this.heat.paint((at) => stage.palette[this.shade(at)], stage.inks.ink);
  }

  look() {
    const { stage, trace, pass } = this;
    look(this.box, trace, Math.min(pass, trace.count), stage.place === null ? null : trace.begin + stage.place);
  }

  point(before, place) {
    this.cells[before ?? -1]?.cell.classList.remove("here");
    this.cells[place ?? -1]?.cell.classList.add("here");
    this.heat.draw(Math.min(this.pass, this.trace.count), place, this.stage.parts, this.stage.inks);
    this.look();
  }

  /** The position that the keyboard is at. */
  activate(before, place) {
    this.cells[before ?? -1]?.cell.setAttribute("aria-selected", "false");
    const cell = this.cells[place ?? -1]?.cell;
    cell?.setAttribute("aria-selected", "true");
    if (cell) this.text.setAttribute("aria-activedescendant", cell.id);
    return cell;
  }

  /** For screen readers. */
  says(place) {
    const { trace } = this;
    const [pass, at] = [Math.min(this.pass, trace.count), trace.begin + place];
    const token = trace.committed[at] !== 0 && trace.committed[at] <= pass ? trace.final[at] : best(trace, pass, at);
    return `Position ${place + 1}: ${token < 0 ? "nothing predicted" : wordOf(trace, token)}, ${stateOf(trace, pass, at)}`;
  }
}

/** The false equations of an answer: their text, places in it, and the pass that closed each. */
function wrongsOf(trace) {
  return trace.marks.filter((mark) => !mark.isTrue && mark.last >= trace.begin).map(({ first, last }) => {
    const from = Math.max(first, trace.begin);
    const pass = Math.max(1, ...trace.committed.subarray(from, last + 1));
    return { text: shown(textOf(trace, first, last + 1)).trim(), from: from - trace.begin, place: last - trace.begin, pass };
  });
}

/** For each index of the answer that lies in a false equation: the pass that closed the equation; 0 elsewhere. */
function closingPasses(wrongs, size) {
  const found = new Int32Array(size);
  for (const { from, place, pass } of wrongs) found.fill(pass, from, place + 1);
  return found;
}
