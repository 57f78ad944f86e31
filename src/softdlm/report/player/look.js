// What one position looks like after a pass: its candidates, its entropy, and what it is fed in the next pass.

import { make, percent, shown } from "./dom.js";
import { fedBack, predicted } from "./trace.js";

/** The words of a token: EOS reads as the end. */
export const wordOf = (trace, token) => trace.ends.has(token) ? "∎ end" : shown(trace.text(token));

/** Fill `box` with what `pass` says about a position. */
export function look(box, trace, pass, at) {
  if (at === null || at >= trace.length) {
    box.replaceChildren(make("p", { className: "quiet" }, at === null ? "Point at a token." : "This answer has no such position."));
    return;
  }
  const since = trace.committed[at];
  const done = since > 0 && since <= pass;
  const found = predicted(trace, done ? since : pass, at);
  box.replaceChildren(
    make("h3", {}, `Position ${at - trace.begin + 1}`, done || since < 0 ? `: “${wordOf(trace, trace.final[at])}”` : ""),
    make("p", { className: "state" }, stateOf(trace, pass, at)),
    ...(found ? [barsOf(trace, found.candidates, done ? trace.final[at] : -1), entropyOf(found, done, since)] : []),
    ...(done || since < 0 ? [] : fedOf(trace, pass, at)),
  );
}

export function stateOf(trace, pass, at) {
  const since = trace.committed[at];
  if (since < 0) return "given, not decoded";
  if (since > 0 && since <= pass) return `committed in pass ${since} at ${percent(trace.sure[at])}`;
  if (pass === 0) return "open: [MASK]";
  const never = since === 0 && pass === trace.count;
  return never ? "left open: the answer ends before it" : `open after pass ${pass}`;
}

function barsOf(trace, candidates, taken) {
  const box = make("div", { className: "bars" });
  for (const { token, share } of candidates) {
    const fill = make("i");
    fill.style.width = `${share * 100}%`;
    box.append(
      make("span", { className: token === taken ? "word taken" : "word" }, wordOf(trace, token)),
      make("span", { className: "bar", "aria-hidden": "true" }, fill),
      make("span", { className: "share" }, percent(share)),
    );
  }
  return box;
}

const entropyOf = (found, done, since) => make("p", { className: "quiet" }, `Entropy ${found.entropy.toFixed(2)} nats${done ? ` in pass ${since}` : ""}`);

function fedOf(trace, pass, at) {
  const fed = pass === 0 ? { kind: "first" } : fedBack(trace, pass, at);
  if (fed === null) return [];
  const next = make("b", {}, `Fed to pass ${pass + 1}: `);
  if (fed.kind === "first") return [make("p", { className: "fed" }, next, "[MASK], as before every first pass")];
  if (fed.kind === "mask") return [make("p", { className: "fed" }, next, "[MASK]"), mixOf(1, [])];
  if (fed.kind === "other") return [make("p", { className: "fed" }, next, "a soft token of more than these candidates")];
  const words = fed.parts.map((each) => `${percent(each.weight)} ${wordOf(trace, each.token).trim() || "␣"}`).join(" + ");
  const ways = { arc: `, λ = ${fed.lam} of the way along the arc`, line: `, λ = ${fed.lam} of the way on the line`, shares: "" };
  return [
    make("p", { className: "fed" }, next, `soft: ${percent(fed.mask)} [MASK] + ${words}${ways[fed.kind]}`),
    mixOf(fed.mask, fed.parts.map((each) => each.weight)),
  ];
}

function mixOf(mask, weights) {
  const box = make("div", { className: "bar mix", "aria-hidden": "true" });
  [mask, ...weights].forEach((weight, index) => {
    const part = make("i", { className: `m${Math.min(index, 3)}` });
    part.style.width = `${weight * 100}%`;
    box.append(part);
  });
  return box;
}
