// One scale for order and confidence. Lightness runs one way, so it reads without hue too, with every kind of colour
// blindness. The ink on it keeps a contrast of at least 4.5 in both themes.

const LIGHT = [[0.965, 0.055, 100], [0.90, 0.085, 125], [0.83, 0.085, 185], [0.75, 0.10, 235], [0.67, 0.12, 262]];
const DARK = [[0.31, 0.035, 190], [0.36, 0.06, 195], [0.42, 0.085, 225], [0.47, 0.115, 255], [0.51, 0.15, 290]];

export const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

/** The colour of a share from 0 (first, unsure) to 1 (last, sure). */
export function colour(share) {
  const stops = isDark() ? DARK : LIGHT;
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const index = Math.min(Math.floor(place), stops.length - 2);
  const part = place - index;
  const [l, c, h] = stops[index].map((value, axis) => value + (stops[index + 1][axis] - value) * part);
  return `oklch(${l.toFixed(3)} ${c.toFixed(3)} ${h.toFixed(1)})`;
}

/** The scale as steps that are looked up while playing. */
export const palette = (steps = 64) => Array.from({ length: steps }, (_, index) => colour(index / (steps - 1)));

export const ramp = () => `linear-gradient(90deg, ${palette(9).join(", ")})`;
