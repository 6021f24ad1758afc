// Filling the page from a logged request. What it has no field for is left out, and the page says so.

// Omitted collects what is left out.
class Omitted extends Map {
  add(name, n = 1) { if (n) this.set(name, (this.get(name) ?? 0) + n); }
  names() { return [...this].map(([name, n]) => n > 1 ? `${name} (${n})` : name); }
}

// knownOnly leaves out the members of an object that a form has no field for.
function knownOnly(body, known, omitted) {
  for (const [name, value] of Object.entries(body)) {
    if (!known.includes(name) && value !== null && value !== false) omitted.add(name);
  }
}

const listOf = (content) => typeof content === "string" ? [{ type: "text", text: content }] : Array.isArray(content) ? content : content ? [content] : [];

// The log stores the size of binary data in place of it.
const isStored = (url) => typeof url === "string" && /^(https?:|data:)/.test(url);

// readParts returns the text and the images of a message's content, in the format of any of the APIs.
function readParts(content, omitted) {
  const texts = [], images = [];
  for (const part of listOf(content)) {
    const url = { image_url: () => part.image_url?.url ?? part.image_url, input_image: () => part.image_url, image: () => sourceURL(part.source) }[part.type];
    if (["text", "input_text", "output_text"].includes(part.type)) texts.push(part.text ?? "");
    else if (part.type === "refusal") texts.push(part.refusal ?? "");
    else if (url && isStored(url())) images.push({ url: url(), name: "image" });
    else if (url) omitted.add("image data, which the log doesn't store");
    else omitted.add(`content of type ${part.type}`);
  }
  return { content: texts.join("\n"), images };
}

const sourceURL = (source) => source?.type === "url" ? source.url : /^[A-Za-z0-9+/]+=*$/.test(source?.data ?? "") ? `data:${source.media_type};base64,${source.data}` : "";

const call = (id, name, input) => ({ id, type: "function", function: { name, arguments: typeof input === "string" ? input : JSON.stringify(input ?? {}) } });

// functionsOf returns the tools that are functions, in the format of chat completions.
function functionsOf(tools, convert, omitted) {
  const list = [];
  for (const tool of tools ?? []) {
    const found = convert(tool);
    if (found?.name) list.push({ type: "function", function: found });
    else omitted.add(`tool of type ${tool.type}`);
  }
  return list;
}

// conversation collects messages. An assistant's text and calls that follow each other are one message.
function conversation(omitted) {
  const list = [], systems = [];
  return {
    list,
    add(role, content, more = {}) {
      const parts = readParts(content, omitted);
      if (role === "system" || role === "developer") systems.push(parts.content);
      else if (["user", "assistant", "tool"].includes(role)) list.push({ role, ...parts, ...more });
      else omitted.add(`message with the role ${role}`);
    },
    call(made) {
      const last = list.at(-1);
      if (last?.role === "assistant") last.tool_calls = [...last.tool_calls ?? [], made];
      else list.push({ role: "assistant", content: "", images: [], tool_calls: [made] });
    },
    result(id, content) { this.add("tool", content, { tool_call_id: id }); },
    system: () => systems.filter(Boolean).join("\n"),
  };
}

// Each of these reads a body into the fields of a chat.
const readers = {
  "/v1/chat/completions"(body, talk, omitted) {
    knownOnly(body, ["model", "messages", "stream", "stream_options", "temperature", "max_tokens", "max_completion_tokens", "top_p", "seed", "stop", "reasoning_effort", "response_format", "tools"], omitted);
    for (const m of body.messages ?? []) {
      const calls = (m.tool_calls ?? []).filter((c) => c.function);
      omitted.add("call of a custom tool", (m.tool_calls?.length ?? 0) - calls.length);
      talk.add(m.role, m.content, { tool_call_id: m.tool_call_id, ...calls.length ? { tool_calls: calls } : {} });
    }
    const tools = (body.tools ?? []).filter((t) => !t.function);
    return {
      max_tokens: body.max_completion_tokens ?? body.max_tokens, seed: body.seed, stop: body.stop, effort: body.reasoning_effort,
      format: body.response_format?.type, schema: body.response_format?.json_schema,
      tools: [...functionsOf((body.tools ?? []).filter((t) => t.function), (t) => t.function, omitted), ...tools],
    };
  },

  "/v1/responses"(body, talk, omitted) {
    knownOnly(body, ["model", "input", "instructions", "stream", "stream_options", "temperature", "max_output_tokens", "top_p", "reasoning", "text", "tools", "store"], omitted);
    if (body.instructions) talk.add("system", body.instructions);
    for (const item of typeof body.input === "string" ? [{ role: "user", content: body.input }] : body.input ?? []) {
      if (item.type === "function_call") talk.call(call(item.call_id, item.name, item.arguments));
      else if (item.type === "function_call_output") talk.result(item.call_id, item.output);
      else if (item.role) talk.add(item.role, item.content);
      else omitted.add(`item of type ${item.type}`);
    }
    const format = body.text?.format, isSchema = format?.type === "json_schema";
    return {
      max_tokens: body.max_output_tokens, effort: body.reasoning?.effort, format: format?.type,
      schema: isSchema ? { name: format.name, description: format.description, schema: format.schema, strict: format.strict ?? undefined } : undefined,
      tools: functionsOf(body.tools, (t) => t.type === "function" ? { name: t.name, description: t.description, parameters: t.parameters, strict: t.strict ?? undefined } : null, omitted),
    };
  },

  "/v1/messages"(body, talk, omitted) {
    knownOnly(body, ["model", "messages", "system", "stream", "temperature", "max_tokens", "top_p", "stop_sequences", "tools"], omitted);
    if (body.system) talk.add("system", body.system);
    for (const m of body.messages ?? []) {
      const blocks = listOf(m.content), isCall = (b) => b.type === "tool_use", isResult = (b) => b.type === "tool_result";
      for (const b of blocks.filter(isResult)) talk.result(b.tool_use_id, b.content);
      const said = blocks.filter((b) => !isCall(b) && !isResult(b));
      if (said.length) talk.add(m.role, said);
      for (const b of blocks.filter(isCall)) talk.call(call(b.id, b.name, b.input));
    }
    return {
      max_tokens: body.max_tokens, stop: body.stop_sequences,
      tools: functionsOf(body.tools, (t) => t.input_schema ? { name: t.name, description: t.description, parameters: t.input_schema } : null, omitted),
    };
  },
};

const typed = (value) => value === undefined || value === null ? "" : String(value);
const asJSON = (value) => value ? JSON.stringify(value, null, 2) : "";

// fillTab fills the fields of a tab from a body and returns the names of what is left out.
const fillTab = {
  chat(body, path) {
    const omitted = new Omitted(), talk = conversation(omitted);
    const read = readers[path](body, talk, omitted);
    const names = new Map(talk.list.flatMap((m) => m.tool_calls ?? []).map((c) => [c.id, c.function.name]));
    for (const m of talk.list) if (m.role === "tool") m.name = names.get(m.tool_call_id);
    for (const m of talk.list.filter((m) => m.role !== "user" && m.images.length)) {
      omitted.add(`image in a message with the role ${m.role}`, m.images.length);
      m.images = [];
    }
    if (!["text", "json_object", "json_schema", undefined].includes(read.format)) {
      omitted.add(`format of type ${read.format}`);
      read.format = undefined;
    }
    Object.assign(state, {
      system: talk.system(), messages: talk.list.length ? talk.list : [newMessage()], stream: body.stream === true, temperature: typed(body.temperature), top_p: typed(body.top_p),
      max_tokens: typed(read.max_tokens), seed: typed(read.seed), effort: typed(read.effort), stop: [read.stop ?? []].flat().join("\n"),
      format: read.format ?? "text", schema: asJSON(read.schema), tools: read.tools.length ? asJSON(read.tools) : "",
    });
    return omitted.names();
  },

  images(body) {
    const omitted = new Omitted();
    knownOnly(body, ["model", "prompt", "n", "size", "quality", "response_format"], omitted);
    Object.assign(state, { prompt: body.prompt ?? "", n: typed(body.n), size: typed(body.size), quality: typed(body.quality) });
    return omitted.names();
  },

  speech(body) {
    const omitted = new Omitted();
    knownOnly(body, ["model", "input", "voice", "response_format", "speed"], omitted);
    Object.assign(state, { speech_input: body.input ?? "", voice: body.voice ?? "", audio_format: body.response_format ?? "mp3", speed: typed(body.speed) });
    return omitted.names();
  },
};
