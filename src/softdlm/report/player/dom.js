// Elements. Text from a model or a user only ever becomes a text node.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; a child that is a string becomes text. */
export function make(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-") || key === "role" || key === "for") made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

/** A token's text on one line. */
export const shown = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥");

/** A share with two decimals near its ends, where they matter. */
export function percent(share) {
  if (share >= 0.99995) return "100 %";
  if (share > 0 && share < 0.00005) return "< 0.01 %";
  return `${(share * 100).toFixed(share < 0.0995 || share >= 0.99 ? 2 : 1)} %`;
}

/** Say something to screen readers. */
export function tell(text) { $("told").textContent = text; }

export function complain(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}
