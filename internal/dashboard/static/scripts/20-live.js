// Live parts: the server sends the page again when it has changed, and its
// parts with data-live replace those that are here.
function keepUpdated() {
  let source = null;
  const begin = () => {
    if (source || document.hidden) return;
    source = new EventSource(location.pathname + location.search);
    source.addEventListener("page", (event) => update(event.data));
    source.addEventListener("gone", () => location.reload());
    source.addEventListener("end", () => end());
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return; // it tries again by itself
      end();
      setTimeout(begin, 60000);
    });
  };
  const end = () => { source?.close(); source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? end() : begin()));
  addEventListener("pagehide", end);
  begin();
}

function update(html) {
  latest = html;
  const fresh = new DOMParser().parseFromString(html, "text/html");
  each(document, "[data-live][id]", (old) => {
    const next = fresh.getElementById(old.id);
    if (!next || received.get(old.id) === next.innerHTML) return;
    if (isInUse(old)) { held.add(old.id); return; }
    received.set(old.id, next.innerHTML);
    keepTyped(old, next);
    const known = new Set([...old.querySelectorAll("[data-row]")].map((row) => row.dataset.row));
    const before = asks(old);
    const waits = old.querySelector(decision + ":disabled") !== null;
    old.replaceChildren(...next.childNodes);
    if (waits || String(before) !== String(asks(old))) letRead(old, before);
    if (known.size) each(old, "[data-row]", (row) => { if (!known.has(row.dataset.row)) row.classList.add("changed"); });
    complete(old);
    chooseLanguage(old, remembered());
  });
  if (held.size) retryLater();
}

// A part waits for its update while someone is in it: with the focus, with the pointer, or
// with a tooltip. A pointer that rests doesn't count, nor one that a touch has left behind.
const held = new Set();
const rest = 5000;
let pointer = null, moved = 0;
const followPointer = (event) => {
  pointer = event.pointerType === "mouse" ? event.target : null;
  moved = performance.now();
};
for (const type of ["pointermove", "pointerdown"]) document.addEventListener(type, followPointer, { passive: true });
document.documentElement.addEventListener("pointerleave", () => { pointer = null; });

function isInUse(part) {
  const pointed = pointer && part.contains(pointer) && performance.now() - moved < rest;
  return pointed || part.contains(document.activeElement) || part.querySelector(".tip") !== null;
}

let retrying = 0;
function retryLater() { retrying ||= setTimeout(retry, 250); }
function retry() {
  retrying = 0;
  const parts = [...held].map((id) => document.getElementById(id));
  if (parts.every((part) => part && isInUse(part))) { retryLater(); return; }
  held.clear();
  update(latest);
}

// What a part asks to decide about, by the addresses of its forms.
const decision = "button[name=decision]";
const asks = (part) => [...part.querySelectorAll(decision)].map((button) => button.form.getAttribute("action"));

// letRead has the buttons of a part wait for a moment: somebody may be about to
// press what was at their place, and has not read what these are about. Whoever
// decides here leaves the page, so what is gone was decided elsewhere.
function letRead(part, before) {
  const now = asks(part);
  if (before.some((ask) => !now.includes(ask))) part.dataset.decided = "elsewhere";
  if (!now.length) return;
  if (part.dataset.decided) {
    const line = document.createElement("p");
    line.className = "warning";
    line.setAttribute("role", "status");
    line.textContent = "The previous call was decided elsewhere. This is the next one.";
    part.prepend(line);
  }
  const buttons = part.querySelectorAll(decision);
  buttons.forEach((button) => { button.disabled = true; });
  setTimeout(() => buttons.forEach((button) => { button.disabled = false; }), 1500);
}

// keepTyped carries over what somebody has typed, ticked or opened.
function keepTyped(old, next) {
  const place = (field) => (field.form?.getAttribute("action") ?? "") + " " + field.name + (field.type === "checkbox" || field.type === "radio" ? "=" + field.value : "");
  const fields = new Map([...next.querySelectorAll("input[name], textarea[name], select[name]")].map((field) => [place(field), field]));
  each(old, "input[name]:not([type=hidden]), textarea[name], select[name]", (field) => {
    const to = fields.get(place(field));
    if (!to) return;
    if (field.type === "checkbox" || field.type === "radio") to.checked = field.checked;
    else if (field.tagName === "SELECT" || field.value !== field.defaultValue) to.value = field.value;
  });
  each(old, "details[id]", (d) => { const to = next.querySelector("#" + CSS.escape(d.id)); if (to) to.open = d.open; });
}
if (document.body.hasAttribute("data-live")) keepUpdated();
