// The search box suggests fields and their known values.
each(document, "input[data-search]", (box) => {
  const list = document.getElementById(box.dataset.search);
  const options = (of) => [...(of?.options ?? of?.list?.options ?? [])].map((o) => [o.value, o.tagName === "OPTION" ? o.label : ""]).filter(([value]) => value);
  const fields = options(document.getElementById("search-fields"));
  const values = (field) => options(document.querySelector(`[data-field="${CSS.escape(field)}"]`));
  let chosen = -1;
  let found = [];

  // The term at the cursor: where it starts, its field if it has one, and its value so far.
  const term = () => {
    const before = box.value.slice(0, box.selectionStart ?? box.value.length);
    const typed = /(?:[^\s"]|"[^"]*"?)*$/.exec(before)[0];
    const parts = /^([a-z_]+):"?(.*)$/is.exec(typed);
    return { start: before.length - typed.length, end: before.length, field: parts?.[1].toLowerCase(), text: (parts ? parts[2] : typed).toLowerCase() };
  };
  const close = () => {
    list.hidden = true;
    chosen = -1;
    box.setAttribute("aria-expanded", "false");
    box.removeAttribute("aria-activedescendant");
  };
  const show = () => {
    const at = term();
    const known = at.field ? values(at.field) : fields;
    found = known.filter(([value]) => value.toLowerCase().includes(at.text) && value.toLowerCase() !== at.text).slice(0, 50);
    found.sort(([a], [b]) => b.toLowerCase().startsWith(at.text) - a.toLowerCase().startsWith(at.text));
    if (!found.length || document.activeElement !== box) return close();
    list.replaceChildren(...found.map(([value, label], i) => {
      const item = document.createElement("li");
      item.id = `${list.id}-${i}`;
      item.role = "option";
      const name = item.appendChild(document.createElement("span"));
      name.textContent = at.field ? value : value + ":";
      if (label && label !== value) {
        const help = item.appendChild(document.createElement("span"));
        help.className = "quiet";
        help.textContent = label;
      }
      return item;
    }));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    mark(-1);
  };
  const mark = (i) => {
    chosen = i;
    [...list.children].forEach((item, n) => item.setAttribute("aria-selected", n === i));
    if (i < 0) return box.removeAttribute("aria-activedescendant");
    box.setAttribute("aria-activedescendant", list.children[i].id);
    list.children[i].scrollIntoView({ block: "nearest" });
  };
  const take = (i) => {
    const at = term();
    const [value] = found[i];
    const quoted = /[\s"]/.test(value) ? `"${value.replace(/["\\]/g, "\\$&")}"` : value;
    const put = at.field ? `${at.field}:${quoted} ` : `${value}:`;
    const rest = box.value.slice(at.end).replace(/^\s+/, at.field ? "" : " ").trimEnd();
    box.value = box.value.slice(0, at.start) + put + rest;
    box.setSelectionRange(at.start + put.length, at.start + put.length);
    if (at.field) close(); else show();
  };
  box.role = "combobox";
  box.setAttribute("aria-autocomplete", "list");
  box.setAttribute("aria-controls", list.id);
  close();
  box.addEventListener("input", show);
  box.addEventListener("click", show);
  box.addEventListener("blur", close);
  list.addEventListener("mousedown", (event) => {
    event.preventDefault(); // the box keeps the focus
    const i = [...list.children].indexOf(event.target.closest("li"));
    if (i >= 0) take(i);
  });
  box.addEventListener("keydown", (event) => {
    const n = list.hidden ? 0 : found.length;
    if (event.key === "ArrowDown" && !n) show();
    else if (event.key === "ArrowDown") mark((chosen + 1) % n);
    else if (event.key === "ArrowUp" && n) mark(chosen > 0 ? chosen - 1 : n - 1);
    else if (event.key === "Escape" && n) close();
    else if ((event.key === "Enter" || event.key === "Tab") && n && chosen >= 0) take(chosen);
    else return;
    event.preventDefault();
  });
});

// The panel with filters closes when something else is chosen.
document.addEventListener("click", (event) => {
  each(document, "details.search-filters[open]", (d) => { if (!d.contains(event.target)) d.open = false; });
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") each(document, "details.search-filters[open]", (d) => { d.open = false; d.querySelector("summary").focus(); });
});

// A button for ticked rows works only while there are some.
const followTicks = () => each(document, "button[data-selects]", (button) => {
  button.disabled = !document.querySelector(`input[name="${button.dataset.selects}"]:checked`);
});
document.addEventListener("change", followTicks);
addEventListener("pageshow", followTicks);
followTicks();
