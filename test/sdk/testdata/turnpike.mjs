// Uses a server with Turnpike's own SDK: tokens, keys, lists, webhooks, jobs, runs and errors.
import assert from "node:assert/strict";
import http from "node:http";

const { Turnpike, TurnpikeError, WebhookError, cachedToken, verifyWebhook } = await import(process.env.PACKAGE);
const baseUrl = process.env.BASE_URL;
const turnpike = new Turnpike({ baseUrl, apiKey: process.env.KEY });

async function listen(handler) {
  const server = http.createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

// A scoped token for a page, which can chat and nothing else.
let minted = 0;
const apiKey = cachedToken(() => {
  minted++;
  return turnpike.post("/v1/scoped_tokens", { body: { scopes: ["chat.completions:create"], expires_in: 900, metadata: { user: "u_42" } } });
});
const values = await Promise.all([apiKey(), apiKey()]);
assert.equal(values[0], values[1]);
assert.equal(await apiKey(), values[0]);
assert.equal(minted, 1);
assert.ok(values[0].startsWith("tp_scoped_"));
await assert.rejects(new Turnpike({ baseUrl: baseUrl + "/v1/", apiKey }).get("/v1/keys"), (error) => {
  assert.ok(error instanceof TurnpikeError && error instanceof Error);
  assert.equal(error.status, 403);
  assert.ok(error.code === "scoped_token_not_allowed" || error.code === "insufficient_scope", error.code);
  assert.match(error.requestId, /^req_/);
  assert.ok(error.message.includes(error.requestId) && error.docUrl);
  return true;
});

// Short-lived tokens are replaced before they expire.
let expiring = 0;
const short = cachedToken(async () => ({ value: String(++expiring), expires_at: Date.now() / 1000 + 30 }));
assert.deepEqual([await short(), await short()], ["1", "2"]);

// Keys: create, rotate, list over several pages.
const key = await turnpike.post("/v1/keys", { body: { name: "ci", scopes: ["models:read"] } });
const rotated = await turnpike.post("/v1/keys/{id}/rotate", { params: { path: { id: key.id } }, body: { grace_period_seconds: 0 } });
assert.equal(rotated.id, key.id);
assert.notEqual(rotated.value, key.value);
await assert.rejects(new Turnpike({ baseUrl, apiKey: key.value }).get("/v1/keys"), { status: 401, code: "authentication_error" });
for (let i = 0; i < 6; i++) await turnpike.post("/v1/keys", { body: { name: `extra ${i}`, scopes: ["models:read"] } });
const names = [];
for await (const entry of turnpike.list("/v1/keys", { params: { query: { limit: 3 } } })) names.push(entry.name);
const all = await turnpike.get("/v1/keys", { params: { query: { limit: 100 } } });
assert.ok(names.length >= 8, names);
assert.deepEqual(names, all.data.map((entry) => entry.name));
const oldest = [];
for await (const entry of turnpike.list("/v1/keys", { params: { query: { limit: 2, order: "asc" } } })) {
  oldest.push(entry.name);
  if (oldest.length === 3) break;
}
assert.deepEqual(oldest, names.toReversed().slice(0, 3));
const revoked = await turnpike.delete("/v1/keys/{id}", { params: { path: { id: key.id } } });
assert.equal(revoked.status, "revoked");
const project = await turnpike.post("/v1/projects", { body: { id: "support-bot", name: "Support bot" } });
const renamed = await turnpike.patch("/v1/projects/{id}", { params: { path: { id: project.id } }, body: { name: "Help" } });
assert.equal(renamed.name, "Help");

// Errors have a code, a message, a parameter and the request's ID.
await assert.rejects(turnpike.post("/v1/keys", { body: { name: "bad", scopes: ["no:scope"] } }), (error) => {
  assert.equal(error.name, "TurnpikeError");
  assert.equal(error.status, 400);
  assert.equal(error.code, "invalid_parameter");
  assert.equal(error.type, "invalid_request_error");
  assert.match(error.param, /^scopes/);
  assert.match(error.requestId, /^req_/);
  return true;
});
await assert.rejects(turnpike.get("/v1/keys/{id}", { params: { path: { id: "key_01h455vb4pex5vsknk084sn02q" } } }), { status: 404, code: "not_found" });

// An image batch, with its progress and its delivery.
let secret;
const deliveries = [];
let arrived = () => {};
const receiver = await listen(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  deliveries.push({ body: Buffer.concat(chunks), headers: request.headers });
  response.writeHead(204).end();
  arrived();
});
const endpoint = await turnpike.post("/v1/webhooks", { body: { url: receiver.url + "/hooks", events: ["image.batch.completed"] } });
secret = endpoint.secret;
const batch = await turnpike.post("/v1/images/batches", {
  body: { requests: ["a", "b", "c"].map((id) => ({ custom_id: id, body: { prompt: `A lighthouse, ${id}`, size: "1024x1024" } })), metadata: { book: "42" } },
});
const progress = [];
const done = await turnpike.waitForImageBatch(batch.id, { pollInterval: 20, onProgress: (job) => progress.push(job.progress) });
assert.equal(done.status, "completed");
assert.equal(done.results.length, 3);
assert.equal(progress.at(-1), 100);
assert.deepEqual(progress, progress.toSorted((a, b) => a - b));
const file = await fetch(done.results[0].images[0].url);
assert.equal(file.headers.get("content-type"), "image/png");

while (deliveries.length === 0) await new Promise((resolve) => (arrived = resolve));
const { body, headers } = deliveries[0];
const delivery = await verifyWebhook(body, headers, secret);
assert.equal(delivery.id, headers["service-event-id"]);
assert.equal(delivery.event.type, "image.batch.completed");
assert.equal(delivery.event.data.id, batch.id);
assert.equal(delivery.event.data.results.length, 3);
assert.deepEqual(await verifyWebhook(body.toString(), new Headers(headers), ["whsec_" + btoa("another"), secret]), delivery);
const arrayBuffer = body.buffer.slice(body.byteOffset, body.byteOffset + body.byteLength);
assert.deepEqual(await verifyWebhook(arrayBuffer, headers, secret), delivery);

// Deliveries that someone changed.
const rejected = (code, ...args) => assert.rejects(verifyWebhook(...args), (error) => error instanceof WebhookError && error.code === code);
await rejected("invalid_signature", body.toString().replace("completed", "failed"), headers, secret);
await rejected("invalid_signature", body, { ...headers, "webhook-id": "dlv_1" }, secret);
await rejected("invalid_signature", body, { ...headers, "service-event-id": "dlv_1" }, secret);
await rejected("invalid_signature", body, { ...headers, "webhook-timestamp": String(Number(headers["webhook-timestamp"]) + 1) }, secret);
await rejected("invalid_signature", body, { ...headers, "webhook-signature": "v1,%%% v2,AAAA v1," }, secret);
await rejected("invalid_signature", body, headers, "whsec_" + btoa("another"));
await rejected("invalid_signature", body, headers, []);
await rejected("stale", body, { ...headers, "webhook-timestamp": "1760000000" }, secret);
await rejected("stale", body, { ...headers, "webhook-timestamp": "now" }, secret);
await rejected("missing_header", body, { ...headers, "webhook-signature": undefined }, secret);
await assert.rejects(verifyWebhook(body, headers, ""), TypeError);

// The deliveries and events of the API.
let event;
for await (const entry of turnpike.list("/v1/events", { params: { query: { limit: 1 } } })) event ??= entry;
assert.equal(event.id, delivery.event.id);
const sent = await turnpike.get("/v1/deliveries/{id}", { params: { path: { id: delivery.id } } });
assert.equal(sent.id, delivery.id);

// An agent run whose tool call needs an approval.
const started = await turnpike.post("/v1/agents/runs", {
  body: {
    model: "gpt-5.4-mini",
    input: 'Refund it. [[sim:script=tool:refund_order{"order":"A-1042"};text:Refunded.]]',
    tools: [{
      type: "http", name: "refund_order", url: "https://shop.example.com/refunds", require_approval: "always",
      parameters: { type: "object", properties: { order: { type: "string" } }, required: ["order"] },
    }],
  },
});
const states = [];
const watch = { pollInterval: 20, onProgress: (run) => states.push(run.status) };
const waiting = await turnpike.waitForRun(started.id, watch);
assert.equal(waiting.status, "awaiting_approval");
const [action] = waiting.required_actions;
assert.equal(action.tool, "refund_order");
await turnpike.post("/v1/agents/runs/{id}/approvals/{approval}", {
  params: { path: { id: started.id, approval: action.id } },
  body: { decision: "approve", arguments_hash: action.arguments_hash },
});
const finished = await turnpike.waitForRun(started.id, watch);
assert.equal(finished.status, "completed");
assert.equal(finished.result.output_text, "Refunded.");
assert.ok(states.includes("awaiting_approval") && states.at(-1) === "completed", states);
const events = [];
for await (const entry of turnpike.runEvents(started.id)) events.push(entry);
assert.deepEqual(events.map((entry) => entry.seq), events.map((_, i) => i + 1));
assert.equal(events[0].type, "run.queued");
assert.equal(events.at(-1).type, "run.completed");
const rest = [];
for await (const entry of turnpike.runEvents(started.id, { startingAfter: events.length - 2 })) rest.push(entry);
assert.deepEqual(rest, events.slice(-2));

// A function tool, which this program executes.
const own = await turnpike.post("/v1/agents/runs", {
  body: { model: "gpt-5.4-mini", input: '[[sim:script=tool:get_weather{"city":"Oslo"};text:Rain.]]', tools: [{ type: "function", name: "get_weather" }] },
});
let run = await turnpike.waitForRun(own.id, { pollInterval: 20 });
assert.equal(run.status, "requires_action");
await turnpike.post("/v1/agents/runs/{id}/tool_outputs", {
  params: { path: { id: run.id } },
  body: { tool_outputs: run.required_actions.map(({ call_id }) => ({ call_id, output: "4 degrees, rain" })) },
});
run = await turnpike.waitForRun(run.id, { pollInterval: 20 });
assert.equal(run.result.output_text, "Rain.");

// Waiting can be aborted. The job goes on.
const slow = await turnpike.post("/v1/videos", { body: { prompt: "[[sim:delay=60s]] A ferry" } });
const aborted = new AbortController();
await assert.rejects(turnpike.waitForVideo(slow.id, { signal: aborted.signal, onProgress: () => aborted.abort() }), { name: "AbortError" });
assert.equal((await turnpike.post("/v1/videos/{id}/cancel", { params: { path: { id: slow.id } } })).id, slow.id);
const render = await turnpike.post("/v1/voice/renders", { body: { input: "Hello there.", voice: "alloy" } });
assert.equal((await turnpike.waitForVoiceRender(render.id, { pollInterval: 20 })).status, "completed");
await assert.rejects(turnpike.get("/v1/billing"), { code: "invalid_state" }); // a test key has no credits
assert.ok(Array.isArray((await turnpike.get("/v1/usage")).data));

// Retries follow the server's hints, send the same Idempotency-Key, and end.
const seen = [];
const flaky = await listen((request, response) => {
  seen.push([request.url, request.headers["idempotency-key"], request.headers["service-project"]]);
  const attempts = seen.filter(([url]) => url === request.url).length;
  const error = { code: "overloaded", type: "unavailable_error", message: "Later.", param: null, request_id: "req_1", doc_url: "x" };
  request.resume().on("end", () => {
    if (request.url.includes("key_final")) return response.writeHead(500, { "x-should-retry": "false" }).end("<html>");
    if (request.url.includes("key_down")) return response.writeHead(503, { "retry-after-ms": "1" }).end(JSON.stringify({ error }));
    if (attempts === 1) return response.writeHead(429, { "retry-after-ms": "1" }).end(JSON.stringify({ error }));
    if (attempts === 2) return response.destroy();
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ id: "key_1" }));
  });
});
const unreliable = new Turnpike({ baseUrl: flaky.url, apiKey: "tp_test_x", project: "support-bot" });
assert.deepEqual(await unreliable.post("/v1/keys", { body: { name: "x", scopes: [] } }), { id: "key_1" });
assert.equal(seen.length, 3);
assert.ok(seen[0][1] && seen.every(([, idempotency, project]) => idempotency === seen[0][1] && project === "support-bot"));
const one = (id) => unreliable.get("/v1/keys/{id}", { params: { path: { id } } });
await assert.rejects(one("key_down"), { code: "overloaded", message: "Later. (req_1)" });
await assert.rejects(one("key_final"), { status: 500, code: "unknown", requestId: null });
assert.equal(seen.filter(([url]) => url.includes("key_down")).length, 3);
assert.equal(seen.filter(([url]) => url.includes("key_final")).length, 1);

// A stream of run events that breaks is resumed after the last event.
const broken = await listen((request, response) => {
  const seq = 1 + Number(new URL(request.url, "http://x").searchParams.get("starting_after"));
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(`: hello\r\n\r\nid: ${seq}\nevent: step.started\ndata: {"seq":\ndata: ${seq}}\n\nid: 9\ndata: {"seq"`, () => response.destroy());
});
const resumed = [];
for await (const entry of new Turnpike({ baseUrl: broken.url, apiKey: "x" }).runEvents("run_1")) {
  resumed.push(entry.seq);
  if (resumed.length === 2) break;
}
assert.deepEqual(resumed, [1, 2]);

for (const { server } of [receiver, flaky, broken]) {
  server.closeAllConnections();
  server.close();
}
