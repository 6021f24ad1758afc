// Responses: each is a card with the answer, its cost and times, and the raw exchange.

const shorten = (text) => text.replace(/data:([\w/+.-]+);base64,[A-Za-z0-9+/=]{80,}/g, (url, type) => `data:${type};base64,… (${compact.format(url.length)} characters)`)
  .replace(/"b64_json":\s*"[A-Za-z0-9+/=]{80,}"/g, '"b64_json": "…"');
const maxRaw = 200_000;

class Answer {
  constructor(model, path, body) {
    Object.assign(this, { model, path, body, raw: "", text: "", calls: [], started: performance.now() });
    this.title = element("strong", { textContent: model });
    this.badge = element("span", { className: "badge", textContent: "running" });
    this.content = element("div", { className: "pg-text" });
    this.results = element("div");
    this.facts = element("dl", { className: "pg-metrics" });
    this.actions = element("div", { className: "actions" });
    this.request = element("pre", { tabIndex: 0 });
    this.response = element("pre", { tabIndex: 0 });
    this.card = element("section", { className: "card pg-answer", "aria-label": `Response of ${model}`, "aria-busy": "true" },
      element("div", { className: "pg-answer-bar" }, this.title, this.badge), this.content, this.results, this.facts, this.actions,
      element("details", { className: "more" }, element("summary", { textContent: "Raw request" }), this.request),
      element("details", { className: "more" }, element("summary", { textContent: "Raw response" }), this.response));
    this.request.textContent = `POST ${path}\nAuthorization: Bearer tp_scoped_…\nContent-Type: application/json\n\n${shorten(JSON.stringify(body, null, 2))}`;
    this.metric("Input", "–");
    this.metric("Output", "–");
    this.metric("Cost", "–");
    if (path === kinds.chat.path) this.metric("First token", "–");
    this.metric("Latency", "–");
  }

  metric(name, value) {
    let shown = [...this.facts.children].find((e) => e.firstChild.textContent === name);
    if (!shown) {
      shown = element("div", {}, element("dt", { textContent: name }), element("dd"));
      this.facts.append(shown);
    }
    shown.lastChild.textContent = value;
  }

  // run sends the request and shows the response as it arrives.
  async run(signal) {
    let response;
    try {
      response = await send(this.path, this.body, signal);
      this.requestID = response.headers.get("X-Request-Id");
      this.head = `HTTP ${response.status}\nContent-Type: ${response.headers.get("Content-Type")}\nX-Request-Id: ${this.requestID}\n\n`;
      this.headers = response.headers;
      if (!response.ok) {
        this.raw = await response.clone().text();
        throw await failure(response);
      }
      await this.read(response);
      this.done();
    } catch (problem) {
      this.fail(problem, signal);
    }
    this.metric("Latency", duration(performance.now() - this.started));
    this.content.hidden = !this.content.childNodes.length;
    this.card.setAttribute("aria-busy", "false");
    this.showRaw();
    if (this.requestID) this.showLogged(); // the next run need not wait for it
  }

  firstToken() {
    if (this.first) return;
    this.first = performance.now() - this.started;
    this.metric("First token", duration(this.first));
  }

  async read(response) {
    if (!response.headers.get("Content-Type").startsWith("text/event-stream")) {
      this.raw = await response.text();
      const body = JSON.parse(this.raw), choice = body.choices[0];
      this.add(choice.message);
      this.finish = choice.finish_reason;
      this.showUsage(body.usage);
      return;
    }
    for await (const data of events(response, (text) => { this.raw += text; })) {
      if (data === "[DONE]") continue;
      const event = JSON.parse(data);
      if (event.error) throw problemOf(event.error, event.error.status, response.headers);
      const choice = event.choices?.[0];
      if (choice?.delta) this.add(choice.delta);
      this.finish = choice?.finish_reason ?? this.finish;
      if (event.usage) this.showUsage(event.usage);
    }
  }

  // add appends a message, or the next part of one.
  add(part) {
    const text = part.content ?? part.refusal ?? "";
    if (text || part.tool_calls) this.firstToken();
    if (part.refusal) this.refused = true;
    this.text += text;
    if (text) this.content.append(text);
    for (const [i, call] of (part.tool_calls ?? []).entries()) {
      const known = this.calls[call.index ?? i] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
      known.id ||= call.id ?? "";
      known.function.name += call.function?.name ?? "";
      known.function.arguments += call.function?.arguments ?? "";
    }
  }

  showUsage(usage) {
    if (!usage) return;
    const cached = usage.prompt_tokens_details?.cached_tokens;
    this.metric("Input", `${number.format(usage.prompt_tokens)} tokens` + (cached ? `, ${number.format(cached)} cached` : ""));
    this.metric("Output", `${number.format(usage.completion_tokens)} tokens`);
  }

  mark(kind, text) {
    this.badge.className = "badge " + kind;
    this.badge.textContent = text;
  }

  done() {
    if (this.refused) this.mark("warn", "refused");
    else if (this.finish && !["stop", "tool_calls"].includes(this.finish)) this.mark("warn", { length: "cut at the token limit", content_filter: "stopped by the content filter" }[this.finish] ?? this.finish);
    else this.mark("good", this.calls.length ? "calls tools" : "complete");
    if (this.calls.length) this.showCalls();
    else this.actions.append(this.button("Continue the conversation", () => this.keep()), this.copyButton());
  }

  button(text, action) {
    const b = element("button", { type: "button", className: "button small", textContent: text });
    b.addEventListener("click", action);
    return b;
  }

  copyButton() {
    this.content.id = "pg-answer-" + Math.random().toString(36).slice(2);
    return element("button", { type: "button", className: "button small", textContent: "Copy", "data-copy": "#" + this.content.id });
  }

  // keep adds the response to the messages, and a message to answer it.
  keep() {
    state.messages.push(newMessage("assistant", this.text), newMessage());
    this.actions.firstChild.disabled = true;
    save();
    showMessages();
    byID("messages").lastElementChild.querySelector("textarea").focus();
  }

  // showCalls shows the tool calls with a field for the result of each.
  showCalls() {
    const fields = this.calls.map((call) => {
      let pretty = call.function.arguments;
      try {
        pretty = JSON.stringify(JSON.parse(pretty), null, 2);
      } catch { /* the model wrote invalid JSON: show it as it is */ }
      const area = element("textarea", { rows: 2, spellcheck: false, placeholder: '{"temperature": 21}' });
      this.results.append(element("div", { className: "pg-call" }, element("p", {}, element("code", { textContent: call.function.name })), element("pre", { textContent: pretty, tabIndex: 0 }),
        element("label", { textContent: `Result of ${call.function.name}` }, area)));
      return area;
    });
    this.actions.append(this.button("Send results", () => {
      const results = this.calls.map((call, i) => ({ ...newMessage("tool", fields[i].value || "{}"), tool_call_id: call.id, name: call.function.name }));
      state.messages.push({ ...newMessage("assistant", this.text), tool_calls: this.calls }, ...results);
      save();
      showMessages();
      run();
    }));
  }

  fail(problem, signal) {
    if (signal.aborted) {
      this.mark("", "stopped");
      return;
    }
    const isOurs = problem instanceof Problem;
    this.mark("bad", problem.code ?? "failed");
    const link = problem.link ? element("a", { textContent: problem.link[0], href: problem.link[1] }) : null;
    this.problem = isOurs ? problem.message : "The server could not be reached, or the connection broke.";
    this.results.prepend(element("div", { className: "problem" }, element("strong", { textContent: this.problem }),
      element("p", {}, problem.hint ?? (isOurs ? "" : "Check your connection and run again."), " ", link),
      problem.code ? element("p", {}, element("code", { textContent: problem.code }), problem.status ? ` with status ${problem.status}` : "") : null));
  }

  showRaw() {
    let text = this.raw;
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch { /* a stream, or audio */ }
    text = shorten(text);
    this.response.textContent = (this.head ?? "") + (text.length > maxRaw ? text.slice(0, maxRaw) + "\n…" : text);
  }

  // showLogged shows what the request log has: the final tokens and the cost.
  async showLogged() {
    this.actions.append(element("a", { className: "button small", href: `${config.log}/${this.requestID}`, textContent: "Open in the request log" }));
    const facts = await factsOf(this.requestID);
    if (!facts?.settled) return;
    if (facts.input_tokens !== null) this.metric("Input", `${number.format(facts.input_tokens)} tokens` + (facts.cached_tokens ? `, ${number.format(facts.cached_tokens)} cached` : ""));
    if (facts.output_tokens !== null) this.metric("Output", `${number.format(facts.output_tokens)} tokens`);
    const cost = `${number.format(facts.credits)} credits${inDollars(facts.credits)}`;
    this.metric("Cost", config.environment === "test" ? `free (${number.format(facts.simulated_credits)} credits live${inDollars(facts.simulated_credits)})` : cost);
    if (facts.provider) this.metric("Provider", facts.provider);
  }
}
