// What makes the pages better where there is JavaScript. Everything works without it.
"use strict";

const each = (root, selector, fn) => root.querySelectorAll(selector).forEach(fn);

// What only works with this script is shown only with it.
each(document, "[data-needs-script]", (e) => { e.hidden = false; });

// What the server sent of each live part, before this page changed it, and the
// whole of what it sent last.
const received = new Map();
let latest = null;

// Times are shown in UTC; hovering adds the reader's own.
function localTimes(root) {
  each(root, "time[datetime]", (e) => {
    const at = new Date(e.dateTime);
    if (!Number.isNaN(at.getTime()) && e.title.endsWith("UTC")) e.title += "\n" + at.toLocaleString();
  });
}
each(document, "[data-live][id]", (part) => received.set(part.id, part.innerHTML));
localTimes(document);

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
  const before = button.dataset.label ??= button.textContent;
  button.textContent = text;
  setTimeout(() => { button.textContent = before; }, 2000);
}

// A question before what cannot be undone.
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.ask ?? event.target.dataset.ask;
  if (question && !confirm(question)) event.preventDefault();
});

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

// A menu closes when something else is chosen.
document.addEventListener("click", (event) => {
  each(document, "details.menu[open]", (menu) => { if (!menu.contains(event.target)) menu.open = false; });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") each(document, "details.menu[open]", (menu) => { menu.open = false; menu.querySelector("summary").focus(); });
  if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    const first = document.querySelector("form.filters input:not([type=hidden]), form.filters select");
    if (first) { event.preventDefault(); first.focus(); }
  }
});

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
    if (old.contains(document.activeElement)) return; // somebody is there; when they have left, it is brought up to date
    received.set(old.id, next.innerHTML);
    keepTyped(old, next);
    const known = new Set([...old.querySelectorAll("[data-row]")].map((row) => row.dataset.row));
    const before = asks(old);
    const waits = old.querySelector(decision + ":disabled") !== null;
    old.replaceChildren(...next.childNodes);
    if (waits || String(before) !== String(asks(old))) letRead(old, before);
    if (known.size) each(old, "[data-row]", (row) => { if (!known.has(row.dataset.row)) row.classList.add("changed"); });
    localTimes(old);
  });
}
document.addEventListener("focusout", () => setTimeout(() => { if (latest) update(latest); }, 200));

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

// Passkeys.
const toBytes = (s) => Uint8Array.from(atob(s.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const toText = (b) => btoa(String.fromCharCode(...new Uint8Array(b))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

const passkeyProblems = {
  NotAllowedError: "Canceled or timed out.",
  InvalidStateError: "This device already has a passkey for your account.",
  SecurityError: "The browser rejects passkeys here. They need HTTPS and a host name.",
  TypeError: "This browser doesn't support passkeys, or the server is unreachable.",
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.passkey || form.dataset.answered) return;
  event.preventDefault();
  if (form.dataset.asking) return;
  form.dataset.asking = "yes";
  try {
    const begun = await fetch(form.dataset.passkey, { method: "POST" });
    if (begun.redirected) { location = begun.url; return; } // to the sign-in, or to confirm
    if (!begun.ok) throw new Error(begun.status === 429 ? "Too many attempts. Try again in a minute." : "The server could not start. Reload the page.");
    const { options, token } = await begun.json();
    const key = options.publicKey;
    key.challenge = toBytes(key.challenge);
    if (key.user) key.user.id = toBytes(key.user.id);
    for (const list of [key.excludeCredentials, key.allowCredentials]) for (const c of list ?? []) c.id = toBytes(c.id);
    const made = await (key.user ? navigator.credentials.create({ publicKey: key }) : navigator.credentials.get({ publicKey: key }));
    const answer = { id: made.id, rawId: toText(made.rawId), type: made.type, clientExtensionResults: made.getClientExtensionResults(), response: {} };
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (made.response[name]) answer.response[name] = toText(made.response[name]);
    }
    form.elements.token.value = token;
    form.elements.response.value = JSON.stringify(answer);
    form.dataset.answered = "yes";
    form.submit();
  } catch (problem) {
    let line = form.querySelector(".problem");
    if (!line) {
      line = document.createElement("p");
      line.className = "problem";
      line.setAttribute("role", "alert");
      form.append(line);
    }
    line.textContent = passkeyProblems[problem.name] ?? problem.message;
  } finally {
    delete form.dataset.asking;
  }
});
