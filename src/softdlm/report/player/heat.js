// The order of commits: a column for each position of the answer, a row for each pass.

import { make } from "./dom.js";
import { bestShare } from "./trace.js";

export class Heat {
  constructor(trace, onPoint, onChoose) {
    this.trace = trace;
    this.columns = trace.length - trace.begin;
    this.canvas = make("canvas", { role: "img", "aria-label": this.summary() });
    const axes = make("p", {}, make("span", {}, "position →"), make("span", {}, "pass ↓"));
    this.element = make("div", { className: "heat" }, axes, this.canvas);
    this.plain = document.createElement("canvas");
    this.canvas.addEventListener("pointermove", (event) => onPoint(this.at(event).index));
    this.canvas.addEventListener("pointerleave", () => onPoint(null));
    this.canvas.addEventListener("click", (event) => onChoose(this.at(event)));
  }

  summary() {
    const { committed, begin, end, count } = this.trace;
    const first = [];
    for (let at = begin; at < end; at++) if (committed[at] === 1) first.push(at - begin + 1);
    const where = first.length ? `the first commits positions ${first.join(", ")}` : "the first commits none of the text";
    return `Order of commits: ${this.columns} positions in ${count} passes; ${where}`;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (value, least, size) => Math.min(Math.max((value - least) / size, 0), 0.9999);
    return {
      index: Math.floor(share(event.clientX, box.left, box.width) * this.columns),
      pass: Math.floor(share(event.clientY, box.top, box.height) * this.trace.count) + 1,
    };
  }

  /** Draw what does not change while playing. `shade(at)`: the colour of a committed position. */
  paint(shade, ink) {
    const { trace, plain, columns } = this;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = plain.width = Math.max(Math.round(this.canvas.clientWidth * ratio), 1);
    this.canvas.height = plain.height = Math.max(Math.round(this.canvas.clientHeight * ratio), 1);
    const pen = plain.getContext("2d");
    const [wide, high] = [plain.width / columns, plain.height / trace.count];
    const cell = (index, pass) => {
      const [x, y] = [Math.round(index * wide), Math.round((pass - 1) * high)];
      pen.fillRect(x, y, Math.round((index + 1) * wide) - x, Math.round(pass * high) - y);
    };
    pen.clearRect(0, 0, plain.width, plain.height);
    for (let index = 0; index < columns; index++) {
      const at = trace.begin + index;
      const until = trace.committed[at] > 0 ? trace.committed[at] - 1 : trace.committed[at] < 0 ? 0 : trace.count;
      pen.fillStyle = ink;
      for (let pass = 1; pass <= until; pass++) {
        pen.globalAlpha = 0.02 + 0.15 * bestShare(trace, pass, at);
        cell(index, pass);
      }
      pen.globalAlpha = 1;
      if (trace.committed[at] > 0) {
        pen.fillStyle = shade(at);
        for (let pass = trace.committed[at]; pass <= trace.count; pass++) cell(index, pass);
      }
    }
    this.ink = ink;
  }

  /** The same with a line under the pass, and around the position that is looked at. */
  draw(pass, index, parts, colours) {
    const { canvas, plain, trace, columns } = this;
    const pen = canvas.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [canvas.width / columns, canvas.height / trace.count];
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.drawImage(plain, 0, 0);
    if (pass < trace.count) {
      pen.globalAlpha = 0.62;
      pen.fillStyle = colours.card;
      pen.fillRect(0, pass * high, canvas.width, canvas.height - pass * high);
      pen.globalAlpha = 1;
      pen.fillStyle = colours.ink;
      pen.fillRect(0, Math.round(pass * high - ratio / 2), canvas.width, Math.max(ratio, 1));
    }
    if (parts !== null && parts < columns) {
      const x = (parts + 0.5) * wide;
      pen.fillStyle = colours.parts;
      pen.beginPath();
      pen.moveTo(x - 4.5 * ratio, 0);
      pen.lineTo(x + 4.5 * ratio, 0);
      pen.lineTo(x, 7 * ratio);
      pen.fill();
    }
    if (index !== null && index < columns) {
      pen.strokeStyle = colours.focus;
      pen.lineWidth = 1.5 * ratio;
      pen.strokeRect(index * wide, ratio, Math.max(wide, 2 * ratio), canvas.height - 2 * ratio);
    }
  }
}
