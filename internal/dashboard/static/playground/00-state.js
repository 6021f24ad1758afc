// The playground: it builds requests, sends them to the API with short-lived tokens, and shows what comes back.
// The files of this directory are joined into one module.
const root = document.getElementById("playground");
const config = JSON.parse(root.dataset.config);
const byID = (id) => document.getElementById("pg-" + id);
const all = (selector, within = root) => [...within.querySelectorAll(selector)];

// element builds an element. Properties that contain a dash are attributes.
function element(tag, properties = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") e.setAttribute(name, value);
    else e[name] = value;
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

const newMessage = (role = "user", content = "") => ({ role, content, images: [] });
const defaults = () => ({
  tab: "chat", compare: false, system: "", messages: [newMessage()], stream: true, temperature: "", max_tokens: "", top_p: "", seed: "",
  stop: "", effort: "", format: "text", schema: "", tools: "", model: "", second_model: "",
  prompt: "", image_model: "", size: "", n: "", quality: "", speech_input: "", speech_model: "", voice: "alloy", audio_format: "mp3", speed: "",
});

// Everything that is typed stays in this tab: it survives a reload and is sent nowhere but to the model.
const storageKey = "playground:" + config.path;
let state = { ...defaults(), ...stored() };

function stored() {
  try {
    return JSON.parse(sessionStorage.getItem(storageKey)) ?? {};
  } catch {
    return {};
  }
}

function save() {
  try {
    sessionStorage.setItem(storageKey, JSON.stringify(state));
  } catch { // the images don't fit
    const messages = state.messages.map((m) => ({ ...m, images: m.images.filter((i) => !i.url.startsWith("data:")) }));
    try {
      sessionStorage.setItem(storageKey, JSON.stringify({ ...state, messages }));
    } catch { /* storage is full or turned off: nothing survives a reload */ }
  }
}

function showFields() {
  for (const field of all("[data-field]")) {
    const value = state[field.dataset.field];
    if (field.type === "checkbox") field.checked = value;
    else field.value = value;
    if (field.tagName === "TEXTAREA") grow(field);
  }
}

// grow fits a text area to its text, for browsers without field-sizing.
function grow(area) {
  if (CSS.supports("field-sizing", "content") || !area.offsetParent) return;
  area.rows = Math.max(Number(area.dataset.rows ??= area.rows), Math.min(20, area.value.split("\n").length));
}

root.addEventListener("input", (event) => {
  const field = event.target.closest("[data-field]");
  if (field) {
    state[field.dataset.field] = field.type === "checkbox" ? field.checked : field.value;
    showDependents();
    save();
  }
  if (event.target.tagName === "TEXTAREA") grow(event.target);
});

// A problem is an error that says what to do.
class Problem extends Error {
  constructor(message, more = {}) {
    super(message);
    Object.assign(this, more);
  }
}

const number = new Intl.NumberFormat("en-US", { maximumFractionDigits: 6 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const dollars = new Intl.NumberFormat("en-US", { style: "currency", currency: "USD", maximumFractionDigits: 6 });
// inDollars is what follows amounts of credits: nothing if the value of a credit isn't known.
const inDollars = (...amounts) => config.credit_usd ? ", " + amounts.map((a) => dollars.format(a * config.credit_usd)).join(" / ") : "";
const duration = (ms) => ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
