// How wide texts are, in em, without asking the layout: cells keep the width of their final token.

const pen = document.createElement("canvas").getContext("2d");

export class Ruler {
  constructor(family) {
    this.font = `100px ${family}`;
    this.widths = new Map();
  }

  of(text) {
    let width = this.widths.get(text);
    if (width === undefined) {
      pen.font = this.font;
      width = pen.measureText(text).width / 100;
      this.widths.set(text, width);
    }
    return width;
  }

  /** The part of a text that has room. */
  cut(text, room) {
    if (this.of(text) <= room + 0.02) return text;
    let size = text.length - 1;
    while (size > 0 && this.of(text.slice(0, size)) > room + 0.02) size--;
    return text.slice(0, size);
  }
}
