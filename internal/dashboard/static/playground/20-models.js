// The model pickers: text fields that search the models, with price and context.

let models = [];
const modelsShown = 60;
const preferred = ["gpt-5.4-mini", "gpt-5.4", "gpt-4o-mini", "gpt-image-2", "gpt-image-1.5", "gpt-4o-mini-tts", "tts-1"];

const findModel = (id) => models.find((m) => m.id === id);
const can = (id, capability) => { const m = findModel(id); return !m || m.capabilities.includes(capability); };

function priceOf(m) {
  const p = m.prices;
  if (m.vendor === "route") return "price of the chosen model";
  if (!p) return "price unknown";
  const parts = [];
  if (p.input || p.output) parts.push(`${number.format(p.input ?? 0)} in · ${number.format(p.output ?? 0)} out credits per 1M tokens${inDollars(p.input ?? 0, p.output ?? 0)}`);
  for (const unit of ["image", "second", "character"]) if (p[unit]) parts.push(`${number.format(p[unit])} credits per ${unit}${inDollars(p[unit])}`);
  return parts.join(" · ") || "free";
}

// shortFacts fit on a line of the list.
function shortFacts(m) {
  const price = m.prices?.input || m.prices?.output ? `${number.format(m.prices.input ?? 0)} / ${number.format(m.prices.output ?? 0)} per 1M` : priceOf(m);
  return [m.vendor, price, m.context ? compact.format(m.context) : ""].filter(Boolean).join(" · ");
}

const contextOf = (m) => m.context ? compact.format(m.context) + " context" : "";

class Picker {
  constructor(box) {
    this.box = box;
    this.field = box.dataset.picker;
    this.kind = box.dataset.kind;
    this.input = box.querySelector("input");
    this.sheet = box.querySelector(".pg-sheet");
    this.list = box.querySelector("[role=listbox]");
    this.active = -1;
    this.input.addEventListener("focus", () => { this.input.select(); this.open(""); });
    this.input.addEventListener("click", () => this.open(""));
    this.input.addEventListener("input", () => { this.choose(this.input.value.trim()); this.open(this.input.value); });
    this.input.addEventListener("blur", () => this.close());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault(); // keeps the focus
      const option = event.target.closest("[role=option]");
      if (option) this.pick(option);
    });
  }

  // show displays the chosen model.
  show() {
    const value = state[this.field], m = findModel(value);
    if (this.input !== document.activeElement || this.sheet.hidden) this.input.value = value;
    const facts = this.box.querySelector(".pg-facts");
    if (m) facts.textContent = [m.vendor, priceOf(m), contextOf(m)].filter(Boolean).join(" · ");
    else facts.textContent = value && models.length ? "Not in the list of models." : "";
  }

  choose(id) {
    state[this.field] = id;
    this.show();
    showDependents();
    save();
  }

  matches(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const found = models.filter((m) => m.kind === this.kind && words.every((w) => (m.id + " " + m.vendor).toLowerCase().includes(w)));
    const chosen = (m) => m.id === state[this.field];
    return words.length ? found : [...found.filter(chosen), ...found.filter((m) => !chosen(m))];
  }

  open(text) {
    const found = this.matches(text);
    this.list.replaceChildren(...found.slice(0, modelsShown).map((m, i) => element("div", { role: "option", id: `${this.list.id}-${i}`, "aria-selected": String(m.id === state[this.field]), "data-model": m.id },
      element("strong", { textContent: m.id }), element("small", { textContent: shortFacts(m) }))));
    let note = "";
    if (!found.length) note = models.length ? "No model matches. The name is sent as you typed it." : "No models are available.";
    else if (found.length > modelsShown) note = `${found.length - modelsShown} more. Type to search.`;
    this.sheet.querySelector(".pg-more").textContent = note;
    this.sheet.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    const chosen = found.findIndex((m) => m.id === state[this.field]);
    this.activate(chosen < 0 && text ? 0 : chosen);
  }

  close() {
    this.sheet.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    this.input.value = state[this.field];
    this.show();
  }

  activate(index) {
    const options = [...this.list.children];
    this.active = Math.min(index, options.length - 1);
    options.forEach((o, i) => o.classList.toggle("active", i === this.active));
    const option = options[this.active];
    if (!option) { this.input.removeAttribute("aria-activedescendant"); return; }
    this.input.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }

  pick(option) {
    this.choose(option.dataset.model);
    this.close();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey) return;
    const isOpen = !this.sheet.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) this.open("");
      else this.activate(Math.max(0, this.active + (event.key === "ArrowDown" ? 1 : -1)));
    } else if (event.key === "Enter" && isOpen) {
      event.preventDefault();
      const option = this.list.children[this.active];
      if (option) this.pick(option);
      else this.close();
    } else if (event.key === "Escape" && isOpen) {
      event.stopPropagation();
      this.close();
    }
  }
}

const pickers = all("[data-picker]").map((box) => new Picker(box));

async function loadModels() {
  try {
    models = await fetchJSON(config.path + "/models");
  } catch (problem) {
    showProblem(problem);
    return;
  }
  for (const picker of pickers) {
    if (!state[picker.field]) {
      const usable = models.filter((m) => m.kind === picker.kind), ids = usable.map((m) => m.id);
      const choice = preferred.filter((id) => ids.includes(id));
      state[picker.field] = (picker.field === "second_model" ? choice[1] : choice[0]) ?? ids[0] ?? "";
    }
    picker.show();
  }
  showDependents();
}
