// What one position looks like after a pass: its candidates, its entropy, and what it is fed in the next pass.

import { make, percent, shown } from "./dom.js";
import { fedBack, predicted } from "./trace.js";

/** The words of a token: EOS reads as the end. */
export function wordOf(trace, token) {
  const text = shown(trace.text(token));
  return trace.ends.has(token) ? "∎ end" : text.trim() ? text : text.replaceAll(" ", "␣");
}

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
    make("h4", {}, `Position ${at - trace.begin + 1}`, done || since < 0 ? `: “${wordOf(trace, trace.final[at])}”` : ""),
    make("p", { className: "state" }, stateOf(trace, pass, at)),
    ...(trace.k ? [] : [make("p", { className: "quiet" }, "Candidates and feedback were not recorded; softdlm generate --trace records them.")]),
    ...(found ? [barsOf(trace, found.candidates, done ? trace.final[at] : -1), entropyOf(found, done, since)] : []),
    ...(since < 0 ? [] : done ? fedOf(trace, since - 1, at, "Pass", "saw") : fedOf(trace, pass, at, "Fed to pass", "")),
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
      make("span", { className: "share" }, share === 0 ? "< 0.01 %" : percent(share)),
    );
  }
  return box;
}

const entropyOf = (found, done, since) => make("p", { className: "quiet" }, `Entropy ${found.entropy.toFixed(2)} nats${done ? ` in pass ${since}` : ""}`);

/** What a position is fed after a pass, in words and as a bar. */
function fedOf(trace, pass, at, before, after) {
  const fed = fedBack(trace, pass, at);
  if (fed === null) return [];
  const next = make("b", {}, `${before} ${pass + 1}${after ? ` ${after}` : ""}: `);
  if (fed.kind === "mask") return [make("p", { className: "fed" }, next, "[MASK]"), mixOf(1, [])];
  if (fed.kind === "other") return [make("p", { className: "fed" }, next, "a soft token of more than these candidates")];
  const told = fed.parts.filter(({ weight }, index) => index === 0 || weight >= 0.0001);
  const words = told.map(({ token, weight }) => `${percent(weight)} ${wordOf(trace, token).trim()}`).join(" + ");
  const ways = {
    arc: `soft, ${fed.way} of the way along the arc from [MASK] to ${words}`,
    line: `soft, ${fed.way} of the way from [MASK] to ${words}`,
    shares: `soft, ${percent(1 - fed.way)} [MASK] + ${words}`,
  };
  const scale = fed.kind === "shares" ? 1 : fed.way;
  return [make("p", { className: "fed" }, next, ways[fed.kind]), mixOf(1 - fed.way, fed.parts.map(({ weight }) => weight * scale))];
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
