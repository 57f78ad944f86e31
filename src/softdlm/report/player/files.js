// Traces from files and links, and pages that are saved.

import { readTrace } from "./trace.js";

const LARGEST = 64 * 2 ** 20;
const HOLE = `<script type="application/json" id="traces">null</${"script"}>`; // whole, it would end the saved page's own script

/** What a rule is called in a heading. */
export function labelOf(feedback) {
  const names = { vanilla: "Vanilla", slerp: "SLERP", euclidean: "Euclidean" };
  return names[(feedback ?? "").split("(")[0]] ?? ((feedback ?? "").replace(/, \w+=[^(),]*/g, "").replace(/\(\w+=[^(),]*\)/g, "") || "Answer");
}

/** One saved set of methods, from what a file holds: a trace, or what this page saved. */
export function readSaved(data) {
  if (data && data.softdlm_page === 1) {
    const methods = data.methods.map(({ label, begins, edited, trace }) => ({ label: String(label), edited, trace: readTrace(trace, begins) }));
    return { methods, question: String(data.question ?? ""), note: String(data.note ?? ""), title: String(data.title ?? "") };
  }
  const trace = readTrace(data);
  return { methods: [{ label: labelOf(data.method.feedback), trace }], question: data.prompt, note: "", title: "" };
}

/** Several files as one set. */
export async function readFiles(files) {
  const sets = [];
  for (const file of files) {
    if (file.size > LARGEST) throw new Error(`${file.name} is larger than 64 MiB: this cannot be a trace`);
    let data;
    try { data = JSON.parse(await file.text()); } catch { throw new Error(`${file.name} is not JSON`); }
    try { sets.push(readSaved(data)); } catch (error) { throw new Error(`${file.name}: ${error.message}`, { cause: error }); }
  }
  return { ...sets[0], methods: sets.flatMap((set) => set.methods) };
}

/** The address of a trace in this page's own: only the server that the page came from is asked. */
export function linked(address) {
  const found = new URL(address, location.href);
  if (found.origin !== location.origin || !found.protocol.startsWith("http")) {
    throw new Error(`?trace=${address} lies on another server: save the file and open it here`);
  }
  return found;
}

export function packed(stage, question, note = "") {
  const methods = stage.cards.map(({ label, edited, trace }) => ({ label, edited, begins: trace.begin, trace: trace.data }));
  return { softdlm_page: 1, question, note, methods };
}

export function download(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** The page as one file: a frame from the server, with the data in its hole. */
export async function savePage(data) {
  const answer = await fetch("page/saved.html");
  const frame = await answer.text();
  if (!answer.ok || !frame.includes(HOLE)) throw new Error("the server gave no frame for a saved page");
  const text = JSON.stringify(data).replaceAll("<", "\\u003c");
  download("softdlm.html", frame.replace(HOLE, () => HOLE.replace("null", () => text)), "text/html");
}
