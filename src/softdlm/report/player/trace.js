// A trace file as arrays that are quick to draw from. The format is described in records/trace.schema.json.

export const VERSION = 2;

/** Read one trace; throws with a line that says what is wrong. `begins`: where the answer begins, if some was given. */
export function readTrace(data, begins = null) {
  if (!data || typeof data !== "object" || data.softdlm_trace === undefined) throw new Error("this is not a trace saved by softdlm");
  if (data.softdlm_trace !== VERSION) throw new Error(`this is a trace of version ${data.softdlm_trace}; this page reads version ${VERSION}`);
  const { passes: columns, vocabulary, length } = data;
  const count = columns.commits.length;
  const begin = begins ?? data.prompt_ids.length;
  const committed = new Int32Array(length); // the pass that committed a position; 0: never; -1: it was given
  const final = new Int32Array(length).fill(-1); // places in the vocabulary
  const sure = new Float32Array(length);
  const place = new Map(vocabulary.ids.map((id, index) => [id, index]));
  data.prompt_ids.forEach((id, at) => { committed[at] = -1; final[at] = place.get(id); });
  data.fixed.forEach(([at, id]) => { committed[at] = -1; final[at] = place.get(id); });
  let next = 0;
  columns.commits.forEach((many, index) => {
    for (; many > 0; many--, next++) {
      const at = columns.positions[next];
      committed[at] = index + 1;
      final[at] = columns.tokens[next];
      sure[at] = columns.confidence[next] / 1e6;
    }
  });
  const seen = readPasses(columns, length);
  const ends = new Set(data.eos_ids.map((id) => place.get(id)));
  return {
    data, begin, length, count, committed, final, sure, seen, ends,
    ids: vocabulary.ids,
    k: columns.candidates,
    text: (token) => token < 0 ? "" : vocabulary.texts[token] ?? `${vocabulary.ids[token]} `,
    end: endOf(final, committed, ends, begin, length),
    seconds: data.seconds.length ? data.seconds.reduce((sum, each) => sum + each, 0) : null,
    marks: data.marks.map(([first, last, isTrue]) => ({ first, last, isTrue })),
  };
}

/** The first position of the answer that is EOS, or that an early finish left open. */
function endOf(final, committed, ends, begin, length) {
  let at = begin;
  while (at < length && committed[at] !== 0 && !ends.has(final[at])) at++;
  return at;
}

/** For each pass: the row of each position, and the columns of these rows. */
function readPasses(columns, length) {
  const last = new Map();
  let next = 0;
  return columns.commits.map((many, index) => {
    const places = columns.positions.slice(next, next += many);
    const where = columns.candidates ? [...spread(columns.open[index]), ...places] : [];
    const row = new Int32Array(length).fill(-1);
    const ids = columns.ids[index];
    const lists = [];
    let begin = 0;
    where.forEach((at, number) => {
      row[at] = number;
      if (ids[begin] === -1) begin++;
      else last.set(at, ids.slice(begin, begin += columns.candidates));
      lists.push(last.get(at));
    });
    const soft = new Uint8Array(length);
    spread(columns.soft[index]).forEach((at) => { soft[at] = 1; });
    return { row, lists, probs: columns.probs[index], entropy: columns.entropy[index], soft };
  });
}

function spread(runs) {
  const found = [];
  for (let index = 0; index < runs.length; index += 2) {
    for (let at = runs[index]; at < runs[index] + runs[index + 1]; at++) found.push(at);
  }
  return found;
}

/** What pass number `pass` predicted at a position: candidates with probabilities, and the entropy; null: nothing. */
export function predicted(trace, pass, at) {
  const seen = trace.seen[pass - 1];
  const row = seen ? seen.row[at] : -1;
  if (row < 0) return null;
  const candidates = seen.lists[row].map((token, index) => ({ token, share: seen.probs[row * trace.k + index] / 1e4 }));
  return { candidates, entropy: seen.entropy[row] / 1e3 };
}

/** The best candidate of a position after a pass, as a place in the vocabulary; -1: none was recorded. */
export function best(trace, pass, at) {
  const seen = trace.seen[pass - 1];
  const row = seen ? seen.row[at] : -1;
  return row < 0 ? -1 : seen.lists[row][0];
}

export function bestShare(trace, pass, at) {
  const seen = trace.seen[pass - 1];
  const row = seen ? seen.row[at] : -1;
  return row < 0 ? 0 : seen.probs[row * trace.k] / 1e4;
}

/** What a position that stays open after `pass` is fed in the next one: null where there is no next one, or nothing was recorded. */
export function fedBack(trace, pass, at) {
  const after = trace.seen[pass];
  if (!after || !trace.k || (trace.committed[at] > 0 && trace.committed[at] <= pass)) return null;
  if (!after.soft[at]) return { kind: "mask" };
  const { kind, k, lam } = trace.data.mixture;
  let from = pass;
  while (from > 0 && !predicted(trace, from, at)) from--;
  const found = predicted(trace, from, at);
  if (!found || !k || kind === "other") return { kind: "other" };
  const used = found.candidates.slice(0, k);
  const sum = kind === "shares" ? 1 : used.reduce((total, each) => total + each.share, 0) || 1;
  const parts = used.map((each) => ({ token: each.token, weight: each.share / sum }));
  const way = kind === "shares" ? parts.reduce((total, each) => total + each.weight, 0) : lam;
  return { kind, parts, way };
}

/** The text of positions, from one to the one before another. */
export function textOf(trace, first, after) {
  let text = "";
  for (let at = first; at < after; at++) text += trace.text(trace.final[at]);
  return text;
}

/** The token that stands at a position in the end: EOS and what an early finish left open are one. */
const atLast = (trace, index) => trace.begin + index < trace.end ? trace.text(trace.final[trace.begin + index]) : null;

/** The first index of the answer at which the answers have different tokens; null: they are one. */
export function firstDifference(traces) {
  const most = Math.max(...traces.map((trace) => trace.end - trace.begin));
  for (let index = 0; index < most; index++) {
    if (traces.some((trace) => atLast(trace, index) !== atLast(traces[0], index))) return index;
  }
  return null;
}
