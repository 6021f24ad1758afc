// The editor of a conversation, and the request that it makes.

const messageTemplate = byID("message-template");

function showMessages() {
  byID("messages").replaceChildren(...state.messages.map(messageRow));
  for (const area of all("textarea", byID("messages"))) grow(area);
}

function messageRow(message) {
  const row = messageTemplate.content.firstElementChild.cloneNode(true);
  const area = row.querySelector("textarea"), role = row.querySelector(".pg-role");
  area.value = message.content;
  const name = { user: "User", assistant: "Assistant", tool: "Tool result" }[message.role];
  area.setAttribute("aria-label", `${name} message`);
  row.dataset.role = message.role;
  if (message.role === "tool") {
    role.hidden = true;
    row.querySelector(".pg-tool-name").textContent = `Result of ${message.name ?? message.tool_call_id}`;
  }
  role.value = message.role;
  role.addEventListener("change", () => { message.role = role.value; save(); showMessages(); });
  area.addEventListener("input", () => { message.content = area.value; save(); });
  if (message.tool_calls) {
    const calls = row.querySelector(".pg-calls");
    calls.hidden = false;
    calls.textContent = message.tool_calls.map((c) => `${c.function.name}(${c.function.arguments})`).join("\n");
  }
  const forImages = [row.querySelector("[data-do=url]"), row.querySelector("label.pg-icon")];
  for (const control of forImages) control.hidden = message.role !== "user";
  row.querySelector("input[type=file]").addEventListener("change", (event) => attach(message, [...event.target.files]));
  area.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files].filter((f) => f.type.startsWith("image/"));
    if (files.length && message.role === "user") { event.preventDefault(); attach(message, files); }
  });
  const url = row.querySelector(".pg-url"), address = url.querySelector("input");
  const addURL = () => {
    if (!address.value || !address.checkValidity()) { address.setAttribute("aria-invalid", "true"); return; }
    message.images.push({ url: address.value, name: address.value });
    save();
    showMessages();
  };
  const actions = {
    url: () => { url.hidden = !url.hidden; if (!url.hidden) address.focus(); },
    "add-url": addURL,
    remove: () => {
      state.messages.splice(state.messages.indexOf(message), 1);
      if (!state.messages.length) state.messages.push(newMessage());
      save();
      showMessages();
      byID("add").focus();
    },
  };
  row.addEventListener("click", (event) => actions[event.target.closest("[data-do]")?.dataset.do]?.());
  address.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) { event.preventDefault(); addURL(); } });
  row.querySelector(".pg-images").append(...message.images.map((image) => imageRow(message, image)));
  return row;
}

function imageRow(message, image) {
  const remove = element("button", { type: "button", className: "button small", textContent: "Remove", "aria-label": `Remove ${image.name}` });
  remove.addEventListener("click", () => { message.images.splice(message.images.indexOf(image), 1); save(); showMessages(); });
  const shown = image.url.startsWith("data:") ? element("img", { src: image.url, alt: image.name, width: 64, height: 64 }) : null;
  return element("li", {}, shown, element("span", { textContent: image.name }), remove);
}

async function attach(message, files) {
  for (const file of files) {
    const url = await new Promise((done, fail) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => fail(new Problem(`${file.name} could not be read.`));
      reader.readAsDataURL(file);
    });
    message.images.push({ url, name: file.name });
  }
  save();
  showMessages();
}

byID("add").addEventListener("click", () => {
  const last = state.messages.at(-1);
  state.messages.push(newMessage(last?.role === "user" ? "assistant" : "user"));
  save();
  showMessages();
  byID("messages").lastElementChild.querySelector("textarea").focus();
});

const toolExample = [{ name: "get_weather", description: "Return the weather in a city.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];
const schemaExample = { type: "object", properties: { answer: { type: "string" }, confidence: { type: "number" } }, required: ["answer", "confidence"], additionalProperties: false };
byID("tools-example").addEventListener("click", () => {
  state.tools = JSON.stringify(toolExample, null, 2);
  save();
  showFields();
});

// parseField reads JSON that was typed into a field, or says beside it what is wrong.
function parseField(field, check) {
  const area = root.querySelector(`[data-field=${field}]`), line = byID(field + "-problem");
  try {
    const value = check(JSON.parse(state[field]));
    area.removeAttribute("aria-invalid");
    line.textContent = "";
    return value;
  } catch (problem) {
    area.setAttribute("aria-invalid", "true");
    line.textContent = problem instanceof Problem ? problem.message : `This is not valid JSON: ${problem.message}.`;
    area.closest("details")?.setAttribute("open", "");
    openSettings(true);
    area.focus();
    throw new Problem("The request was not sent. Correct the marked field.", { local: true });
  }
}

// asTool accepts a function definition with or without the object around it.
function asTool(definition) {
  const tool = definition?.function ? definition : { type: "function", function: definition };
  if (definition?.type && definition.type !== "function") return definition;
  if (!tool.function?.name) throw new Problem("Every function needs a name.");
  return tool;
}

function partsOf(message) {
  if (!message.images.length) return message.content;
  const images = message.images.map((i) => ({ type: "image_url", image_url: { url: i.url } }));
  return message.content ? [{ type: "text", text: message.content }, ...images] : images;
}

function apiMessage(m) {
  if (m.role === "tool") return { role: "tool", tool_call_id: m.tool_call_id, content: m.content };
  if (m.tool_calls) return { role: "assistant", content: m.content || null, tool_calls: m.tool_calls };
  return { role: m.role, content: m.role === "user" ? partsOf(m) : m.content };
}

function chatBody(model) {
  const messages = state.messages.filter((m) => m.content || m.images.length || m.tool_calls).map(apiMessage);
  if (!messages.length) {
    byID("messages").querySelector("textarea").focus();
    throw new Problem("Write a message first.", { local: true });
  }
  if (state.system.trim()) messages.unshift({ role: "system", content: state.system });
  const body = { model, messages };
  const numbers = { temperature: "temperature", max_tokens: "max_completion_tokens", top_p: "top_p", seed: "seed" };
  for (const [field, name] of Object.entries(numbers)) if (state[field] !== "") body[name] = Number(state[field]);
  const stop = state.stop.split("\n").filter(Boolean);
  if (stop.length) body.stop = stop;
  if (state.effort && can(model, "reasoning")) body.reasoning_effort = state.effort;
  if (state.format === "json_object") body.response_format = { type: "json_object" };
  if (state.format === "json_schema") body.response_format = { type: "json_schema", json_schema: parseField("schema", (s) => s?.schema ? s : { name: "response", strict: true, schema: s }) };
  if (state.tools.trim()) body.tools = parseField("tools", (list) => (Array.isArray(list) ? list : [list]).map(asTool));
  if (state.stream) Object.assign(body, { stream: true, stream_options: { include_usage: true } });
  return body;
}
