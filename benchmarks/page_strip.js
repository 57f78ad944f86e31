// Replaces a saved page by a strip: the answers of some cards (`names`) after some `passes`, as the page draws them.
// The body of an asynchronous function; page_screens.py writes the three constants before it.
const made = (tag, textContent, style) => Object.assign(document.createElement(tag), { textContent, style });
const titled = (name) => (card) => card.querySelector("h3").textContent === name;
const cards = Object.keys(names).map((name) => [...document.querySelectorAll(".card")].find(titled(name)));
const copies = (selector) => cards.map((card) => [...card.querySelectorAll(selector)].map((each) => each.cloneNode(true)));
const columns = "display: grid; gap: 0 24px; align-items: start; grid-template-columns: 4.6rem 1fr 1fr";
const grid = made("main", "", `width: ${width - 40}px; padding: 12px 20px; ${columns}`);
const asked = document.getElementById("question").textContent;
grid.append(made("p", asked, "grid-column: 1 / -1; font-size: 1.08rem; margin-bottom: 0.6rem"), made("span", "", ""));
grid.append(...Object.values(names).map((name) => made("strong", name, "font-size: 1.05rem")));
const slider = document.getElementById("pass");
for (const pass of passes) {
  slider.value = pass;
  slider.dispatchEvent(new Event("input"));
  await new Promise((done) => setTimeout(done, 300));
  const texts = copies(".text").flat();
  for (const text of texts) text.querySelector(".tail")?.remove();
  grid.append(made("span", `pass ${pass}`, "padding-top: 0.8rem"), ...texts);
}
grid.append(made("span", "in all", ""));
for (const parts of copies(".stats, .verdict")) {
  const box = document.createElement("div");
  box.append(...parts);
  grid.append(box);
}
document.body.replaceChildren(grid);
return grid.getBoundingClientRect().height;
