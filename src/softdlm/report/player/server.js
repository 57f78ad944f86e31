// Requests to the server that the page came from. A key is kept in memory only.

import { $ } from "./dom.js";

let key = "";

/** Fetch with the key; a server that asks for one is answered by the user, once more if it was wrong. */
export async function ask(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers, ...(key ? { Authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, { ...options, headers, redirect: "error" });
    if (answer.status === 401 && await askKey()) continue;
    if (!answer.ok) throw new Error(await reason(answer));
    return answer;
  }
}

async function reason(answer) {
  try { return (await answer.json()).error.message; } catch { return `the server answered ${answer.status}`; }
}

function askKey() {
  const dialog = $("ask-key");
  $("key").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      key = dialog.returnValue === "use" ? $("key").value.trim() : "";
      $("key").value = "";
      resolve(key !== "");
    }, { once: true });
  });
}

/** The events of a stream, as JSON; an error event is thrown. */
export async function* events(path, body, signal) {
  const answer = await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n")) continue;
    const lines = parts.join("").split("\n");
    parts = [lines.pop()];
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}
