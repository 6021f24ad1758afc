// What makes the pages better where there is JavaScript. Everything works without it.
"use strict";

const each = (root, selector, fn) => root.querySelectorAll(selector).forEach(fn);

// What the server sent of each live part, before this page changed it, and the
// whole of what it sent last.
const received = new Map();
let latest = null;

// Times are shown in the reader's time zone; hovering shows UTC.
const timeParts = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const shortTime = new Intl.DateTimeFormat("en-US", timeParts);
const localTime = new Intl.DateTimeFormat("en-US", { ...timeParts, year: "numeric" });
function localTimes(root) {
  each(root, "time[datetime]", (e) => {
    const at = new Date(e.dateTime);
    if (Number.isNaN(at.getTime())) return;
    if ("local" in e.dataset) e.textContent = (e.dataset.local === "short" ? shortTime : localTime).format(at);
    else if (e.title.endsWith("UTC")) e.title += "\n" + localTime.format(at);
  });
}

// The slots and ticks of charts have the time in UTC. Those of whole days stay: a day of
// usage is one in UTC.
const clock = new Intl.DateTimeFormat("en-US", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const hourTime = new Intl.DateTimeFormat("en-US", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
function chartTimes(root) {
  each(root, ".chart [data-at]", (e) => {
    const at = new Date(e.dataset.at), label = e.getAttribute("aria-label");
    if (label) e.setAttribute("aria-label", hourTime.format(at) + label.slice(label.indexOf(": ")));
    else e.textContent = (/^\d\d:/.test(e.textContent) ? clock : hourTime).format(at);
    delete e.dataset.at;
  });
}

// complete does with a part of the page what the server can't.
function complete(root) {
  each(root, "[data-needs-script]", (e) => { e.hidden = false; });
  localTimes(root);
  chartTimes(root);
}
each(document, "[data-live][id]", (part) => received.set(part.id, part.innerHTML));
complete(document);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const from = document.querySelector(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(from.value ?? from.textContent);
    say(button, "Copied");
  } catch {
    getSelection().selectAllChildren(from);
    say(button, "Press Ctrl+C");
  }
});

function say(button, text) {
  const label = [...button.childNodes];
  if (!button.dataset.said) setTimeout(() => { button.replaceChildren(...label); delete button.dataset.said; }, 2000);
  button.dataset.said = "yes";
  button.textContent = text;
}

// A form is sent once, however often its button is pressed, unless nothing came
// of it: the browser was told to stop.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || form.dataset.passkey) return;
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = "yes";
  setTimeout(() => { delete form.dataset.sent; }, 10000);
});
addEventListener("pageshow", () => each(document, "form", (f) => { delete f.dataset.sent; delete f.dataset.answered; }));

// Filters apply when they are changed, and leave no empty parameters behind. A
// day waits for the button: it changes with every digit that is typed.
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.filters");
  if (form && event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
});
document.addEventListener("formdata", (event) => {
  if (!event.target.matches("form.filters")) return;
  for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
});

// One box ticks all.
document.addEventListener("change", (event) => {
  const all = event.target.closest("[data-all]");
  if (all) each(document, `input[name="${all.dataset.all}"]`, (box) => { box.checked = all.checked; });
});

// The menu of small screens opens at the current page.
document.getElementById("menu")?.addEventListener("toggle", (event) => {
  if (event.newState === "open") event.target.querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
});

// Tabs that don't fit start at the current one.
each(document, ".tabs [aria-current]", (tab) => {
  const row = tab.parentElement;
  if (tab.offsetLeft + tab.offsetWidth > row.offsetLeft + row.clientWidth) row.scrollLeft = tab.offsetLeft - row.offsetLeft - row.clientWidth / 3;
});

// A menu closes when something else is chosen.
document.addEventListener("click", (event) => {
  each(document, "details.menu[open]", (menu) => { if (!menu.contains(event.target)) menu.open = false; });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") each(document, "details.menu[open]", (menu) => { menu.open = false; menu.querySelector("summary").focus(); });
});
