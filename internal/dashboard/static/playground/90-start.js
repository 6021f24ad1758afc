// Tabs, settings, and running requests.

let running = null; // the AbortController of the requests in progress

function showProblem(problem) {
  const line = byID("problem");
  line.hidden = false;
  line.replaceChildren(problem.message + " ", problem.link ? element("a", { textContent: problem.link[0], href: problem.link[1] }) : "");
}

// showDependents shows what depends on other fields.
function showDependents() {
  for (const part of all("[data-tabs]")) part.hidden = !part.dataset.tabs.split(" ").includes(state.tab);
  for (const name of Object.keys(kinds)) {
    const tab = byID("tab-" + name), isCurrent = name === state.tab;
    tab.setAttribute("aria-selected", String(isCurrent));
    tab.tabIndex = isCurrent ? 0 : -1;
    byID("panel-" + name).hidden = !isCurrent;
  }
  const pickersOf = { chat: state.compare ? ["model", "second_model"] : ["model"], images: ["image_model"], speech: ["speech_model"] }[state.tab];
  for (const picker of pickers) picker.box.hidden = !pickersOf.includes(picker.field);
  byID("current").textContent = kinds[state.tab].models().filter(Boolean).join(", ");
  byID("compare").setAttribute("aria-pressed", String(state.compare));
  byID("effort").hidden = !kinds.chat.models().some((id) => can(id, "reasoning"));
  byID("schema").hidden = state.format !== "json_schema";
  if (state.format === "json_schema" && !state.schema) {
    state.schema = JSON.stringify(schemaExample, null, 2);
    showFields();
  }
  if (state.tools) byID("tools").open = true;
}

function openSettings(open) {
  byID("settings").classList.toggle("open", open);
  byID("settings-toggle").setAttribute("aria-expanded", String(open));
}

function show() {
  showFields();
  showMessages();
  for (const picker of pickers) picker.show();
  showDependents();
}

async function run() {
  if (running) return;
  byID("problem").hidden = true;
  const kind = kinds[state.tab], list = [];
  try {
    for (const model of kind.models()) {
      if (!model) throw new Problem("Choose a model first.", { local: true });
      list.push(new kind.Answer(model, kind.path, kind.body(model)));
    }
  } catch (problem) {
    showProblem(problem);
    return;
  }
  running = new AbortController();
  all("audio").forEach((a) => URL.revokeObjectURL(a.src));
  byID("answers").replaceChildren(...list.map((a) => a.card));
  byID("answers").classList.toggle("two", list.length > 1);
  byID("run").disabled = true;
  byID("stop").disabled = false;
  byID("progress").textContent = byID("status").textContent = "Running…";
  await Promise.all(list.map((a) => a.run(running.signal).then(() => announce(a))));
  running = null;
  byID("run").disabled = false;
  byID("stop").disabled = true;
  byID("progress").textContent = "";
}

// announce tells screen readers the result once, and not each token.
function announce(answer) {
  const text = answer.problem ?? (answer.calls.length ? "It calls " + answer.calls.map((c) => c.function.name).join(", ") : answer.text);
  byID("status").textContent = `${answer.model}: ${text.slice(0, 1000)}`;
}

// chooseTab makes a list of tabs work with the arrow keys.
function tabs(list, choose) {
  const items = all("[role=tab]", list);
  list.addEventListener("click", (event) => { const tab = event.target.closest("[role=tab]"); if (tab) choose(tab); });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], at = items.indexOf(event.target);
    if (!step || at < 0) return;
    const next = items[(at + step + items.length) % items.length];
    next.focus();
    choose(next);
  });
}

tabs(root.querySelector(".pg-bar [role=tablist]"), (tab) => {
  state.tab = tab.dataset.tab;
  save();
  showDependents();
  showFields();
});
tabs(byID("dialog").querySelector("[role=tablist]"), (tab) => {
  language = tab.dataset.language;
  for (const other of all("[data-language]")) {
    other.setAttribute("aria-selected", String(other === tab));
    other.tabIndex = other === tab ? 0 : -1;
  }
  showCode();
});

byID("compare").addEventListener("click", () => { state.compare = !state.compare; save(); showDependents(); });
byID("settings-toggle").addEventListener("click", () => openSettings(!byID("settings").classList.contains("open")));
byID("clear").addEventListener("click", () => {
  const { tab, model, second_model, image_model, speech_model } = state;
  state = { ...defaults(), tab, model, second_model, image_model, speech_model };
  save();
  show();
  byID("answers").replaceChildren(element("section", { className: "card pg-answer pg-idle" }, element("p", { className: "quiet", textContent: "The response appears here." })));
  byID("answers").classList.remove("two");
});
byID("run").addEventListener("click", run);
byID("stop").addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !byID("dialog").open) { event.preventDefault(); run(); }
});

// A directive goes into the text that is sent to the model: the last message of the user.
for (const chip of all("[data-directive]")) {
  chip.addEventListener("click", () => {
    const add = (text) => text + (text && !/\s$/.test(text) ? " " : "") + chip.dataset.directive;
    if (state.tab === "chat") {
      let last = state.messages.findLast((m) => m.role === "user");
      if (!last) state.messages.push(last = newMessage());
      last.content = add(last.content);
      const tool = /\[\[sim:tool=(\w+)\]\]/.exec(chip.dataset.directive);
      if (tool && !state.tools) state.tools = JSON.stringify(toolExample, null, 2);
    } else {
      const field = state.tab === "images" ? "prompt" : "speech_input";
      state[field] = add(state[field]);
    }
    save();
    show();
  });
}

// chooseModel opens the tab of a kind of model with a model.
const tabOf = { image: "images", speech: "speech" };
function chooseModel(model, tab) {
  Object.assign(state, { tab, [{ chat: "model", images: "image_model", speech: "speech_model" }[tab]]: model });
}

// A request of the log fills the page, once: a reload keeps what was changed since.
function fill(logged) {
  const tab = { "/v1/images/generations": "images", "/v1/audio/speech": "speech" }[logged.path] ?? "chat";
  chooseModel(logged.body?.model ?? logged.model, tab);
  const omitted = logged.body ? fillTab[tab](logged.body, logged.path) : [];
  const notice = byID("notice");
  notice.hidden = false;
  notice.textContent = !logged.body ? `Filled with the model of ${logged.id}. Its content is not available.`
    : `Filled from ${logged.id}.${omitted.length ? ` Left out: ${omitted.join(", ")}.` : ""}`;
  notice.className = omitted.length ? "warning" : "notice";
  history.replaceState(null, "", config.path);
  save();
}

if (config.logged) fill(config.logged);
else if (config.model) {
  chooseModel(config.model, tabOf[config.kind] ?? "chat");
  history.replaceState(null, "", config.path);
  save();
}
show();
loadModels();
