// Change one token of an answer as it stood after a pass, and decode on from there.

import { $, make, shown } from "./dom.js";
import { predicted } from "./trace.js";

const NOT_FOR_A_CANVAS = ["max_new_tokens", "stop"];

/** Ask what is to stand at a position; null: nothing was chosen. An id, a text, or undefined for [MASK]. */
export function askToken(card, index) {
  const { trace } = card;
  const at = trace.begin + index;
  const pass = Math.min(card.pass, trace.count);
  const since = trace.committed[at];
  const found = predicted(trace, since > 0 && since <= pass ? since : pass, at);
  let chosen = null;
  const buttons = (found?.candidates ?? []).map(({ token }) => {
    const button = make("button", { type: "button", "aria-pressed": "false" }, trace.ends.has(token) ? "∎ end" : shown(trace.text(token)));
    button.addEventListener("click", () => {
      chosen = trace.ids[token];
      $("other").value = "";
      for (const each of buttons) each.setAttribute("aria-pressed", String(each === button));
    });
    return button;
  });
  $("options").replaceChildren(...buttons);
  $("options").hidden = !buttons.length;
  $("editwhere").textContent = `${card.label}, position ${index + 1}, after pass ${pass}. What is open then is decoded again; what was committed stays.`;
  $("other").value = "";
  const dialog = $("edit");
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => {
    $("replace").onclick = () => { if ($("other").value || chosen !== null) dialog.close("replace"); else $("other").focus(); };
    $("reopen").onclick = () => dialog.close("reopen");
    $("other").onkeydown = (event) => { if (event.key === "Enter") { event.preventDefault(); $("replace").click(); } };
    dialog.addEventListener("close", () => {
      if (dialog.returnValue === "reopen") resolve({ token: null });
      else if (dialog.returnValue === "replace") resolve({ token: $("other").value || chosen });
      else resolve(null);
    }, { once: true });
  });
}

/** The request to /v1/denoise: the canvas after a pass, with one position changed. */
export function branch(card, index, token) {
  const { trace } = card;
  const pass = Math.min(card.pass, trace.count);
  const canvas = Array.from({ length: trace.length }, (_, at) => {
    if (at === trace.begin + index) return token;
    const since = trace.committed[at];
    return since !== 0 && since <= pass ? trace.ids[trace.final[at]] : null;
  });
  const words = Object.fromEntries(Object.entries(trace.data.method).filter(([name]) => !NOT_FOR_A_CANVAS.includes(name)));
  return { canvas, stream: true, softdlm: { ...words, trace: true } };
}
