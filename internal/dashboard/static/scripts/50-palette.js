// The command palette (Ctrl+K): pages, actions, and objects by name or ID. And the shortcuts
// with single keys, which can be turned off.
const palette = (() => {
  const opener = document.querySelector("[data-palette]");
  if (!opener) return null;
  const mac = /Mac|iP(hone|ad)/.test(navigator.platform);
  if (mac) opener.querySelector("kbd").textContent = "⌘ K";

  const make = (tag, properties, ...children) => { const e = Object.assign(document.createElement(tag), properties); e.append(...children); return e; };
  const input = make("input", { type: "text", autocomplete: "off", spellcheck: false, placeholder: "Search pages, keys, projects, or paste an ID…" });
  const list = make("ul", { id: "palette-list" });
  const status = make("p", { className: "hidden-text" });
  const dialog = make("dialog", { className: "palette" }, input, list, status);
  dialog.setAttribute("aria-label", "Search");
  for (const [name, value] of Object.entries({ role: "combobox", "aria-expanded": "true", "aria-controls": "palette-list", "aria-label": "Search pages and objects", "aria-autocomplete": "list" })) input.setAttribute(name, value);
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Results");
  status.setAttribute("role", "status");

  const entry = (kind) => (a) => ({ kind, name: a.firstChild?.nodeType === 3 ? a.textContent.trim() : [...a.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent).join("").trim(), url: a.href });
  const fixed = [
    ...[...document.querySelectorAll(".side a")].map(entry("Page")),
    ...[...document.getElementById("actions").content.querySelectorAll("a")].map(entry("Action")),
    ...[...document.querySelectorAll(".theme button")].map((b) => ({ kind: "Action", name: "Theme: " + b.textContent.trim(), run: () => b.click() })),
    { kind: "Action", name: "Keyboard shortcuts", run: () => shortcuts.show() },
  ];
  let shown = [];
  let at = 0;

  // draw shows items. If more may come, it says so instead of that there are none. The
  // selected item stays.
  function draw(items, waits) {
    const selected = Math.max(0, items.findIndex((item) => item === shown[at]));
    shown = items;
    list.replaceChildren(...items.map((item, i) => {
      const row = make("li", { id: "palette-" + i }, make("span", { className: "kind", textContent: item.kind }), make("span", { className: "name", textContent: item.name }), make("span", { className: "detail", textContent: item.detail ?? "" }));
      row.setAttribute("role", "option");
      row.addEventListener("click", () => open(item));
      row.addEventListener("pointermove", () => select(i));
      return row;
    }));
    status.textContent = waits ? "" : items.length === 1 ? "1 result" : items.length + " results";
    if (!items.length) list.append(make("li", { className: "none", textContent: waits ? "Searching…" : "No results" }));
    select(selected);
  }
  function select(i) {
    at = i;
    [...list.children].forEach((row, k) => row.setAttribute("aria-selected", String(k === i)));
    input.setAttribute("aria-activedescendant", shown.length ? "palette-" + i : "");
    list.children[i]?.scrollIntoView({ block: "nearest" });
  }
  function open(item) {
    if (!item) return;
    dialog.close();
    if (item.run) item.run(); else location.href = item.url;
  }

  let asked = 0;
  let waiting = false; // for the server's results
  let entered = false; // Enter was pressed meanwhile, with nothing to open
  async function search() {
    const text = input.value.trim();
    const words = text.toLowerCase().split(/\s+/);
    const named = fixed.filter((item) => words.every((word) => item.name.toLowerCase().includes(word)));
    const turn = ++asked;
    shown = [];
    at = 0;
    entered = false;
    waiting = text !== "";
    draw(named, waiting);
    if (!waiting) return;
    await new Promise((done) => setTimeout(done, 120));
    if (turn !== asked) return;
    let found = [];
    try {
      const response = await fetch(opener.dataset.palette + "?q=" + encodeURIComponent(text), { headers: { Accept: "application/json" } });
      if (response.ok) found = await response.json();
    } catch { /* the pages and actions remain */ }
    if (turn !== asked) return;
    waiting = false;
    draw([...named, ...found]);
    if (entered && dialog.open) open(shown[0]);
  }

  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && shown.length) { event.preventDefault(); select((at + step + shown.length) % shown.length); }
    if (event.key === "Enter") {
      event.preventDefault();
      entered = waiting && !shown.length;
      open(shown[at]);
    }
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  const show = () => { input.value = ""; search(); dialog.showModal(); };
  opener.addEventListener("click", show);
  return { show, get open() { return dialog.open; } };
})();

// The shortcuts, and the dialog that lists them (?).
const shortcuts = (() => {
  const off = "turnpike-shortcuts-off";
  const pages = new Map([...document.querySelectorAll("[data-go]")].map((a) => [a.dataset.go, a]));
  const make = (tag, properties, ...children) => { const e = Object.assign(document.createElement(tag), properties); e.append(...children); return e; };
  let dialog = null;

  function show() {
    if (!dialog) {
      const line = (keys, text) => make("div", {}, make("dt", {}, ...keys.flatMap((key) => [make("kbd", { textContent: key }), " "])), make("dd", { textContent: text }));
      const box = make("input", { type: "checkbox", checked: !localStorage.getItem(off) });
      box.addEventListener("change", () => { if (box.checked) localStorage.removeItem(off); else localStorage.setItem(off, "yes"); });
      dialog = make("dialog", { className: "shortcuts" }, make("h2", { textContent: "Keyboard shortcuts" }),
        make("dl", {}, line(["Ctrl", "K"], "Search"), line(["/"], "Focus the filter"), line(["j"], "Next row"), line(["k"], "Previous row"), line(["?"], "Keyboard shortcuts"),
          ...[...pages].map(([key, a]) => line(["g", key], [...a.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent).join("").trim()))),
        make("label", { className: "box" }, box, make("span", { textContent: "Single-key shortcuts" })),
        make("form", { method: "dialog" }, make("button", { className: "button", textContent: "Close", autofocus: true })));
      dialog.setAttribute("aria-label", "Keyboard shortcuts");
      dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
      document.body.append(dialog);
    }
    dialog.showModal();
  }

  // move focuses the link of the next or the previous row.
  function move(step) {
    const links = [...document.querySelectorAll("main table.list tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
    const now = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    const next = links[now < 0 ? (step > 0 ? 0 : links.length - 1) : now + step];
    next?.focus();
    next?.closest("tr").scrollIntoView({ block: "nearest" });
  }

  let going = -Infinity; // when g was pressed
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k" && palette) {
      event.preventDefault();
      if (!palette.open) palette.show();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog, [contenteditable]") || localStorage.getItem(off)) return;
    const page = performance.now() - going < 1500 && pages.get(event.key);
    going = -Infinity;
    if (page) { event.preventDefault(); page.click(); return; }
    switch (event.key) {
      case "g": going = performance.now(); break;
      case "j": move(1); break;
      case "k": move(-1); break;
      case "?": if (palette) show(); break;
      case "/": {
        const first = document.querySelector("main input[type=search], form.filters input:not([type=hidden]), form.filters select");
        if (first) { event.preventDefault(); first.focus(); }
      }
    }
  });
  return { show };
})();
