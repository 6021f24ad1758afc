// Runs background responses with the published SDK: poll, stream, resume, cancel, and webhooks.
import assert from "node:assert/strict";
import http from "node:http";
import OpenAI from "openai";

const client = new OpenAI({ apiKey: process.env.KEY, baseURL: process.env.BASE_URL });
const model = "gpt-4o-mini";
const ended = new Set(["completed", "incomplete", "failed", "cancelled"]);

// A receiver that verifies deliveries with the SDK.
const deliveries = [];
let arrived = () => {};
let secret;
const receiver = http.createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  deliveries.push(await client.webhooks.unwrap(Buffer.concat(chunks).toString(), req.headers, secret));
  res.writeHead(204).end();
  arrived();
});
await new Promise((resolve) => receiver.listen(0, "127.0.0.1", resolve));
const endpoint = await client.post("/webhooks", { body: { url: `http://127.0.0.1:${receiver.address().port}/`, events: ["response.*"] } });
secret = endpoint.secret;

async function waitForEvent(id, type) {
  for (;;) {
    const found = deliveries.find((e) => e.data.id === id);
    if (found) {
      assert.equal(found.object, "event");
      assert.equal(found.type, type);
      assert.ok(found.created_at > 0 && found.id.startsWith("evt_"));
      return;
    }
    await new Promise((resolve) => (arrived = resolve));
  }
}

async function poll(id) {
  for (;;) {
    const response = await client.responses.retrieve(id);
    if (ended.has(response.status)) return response;
    assert.ok(response.status === "queued" || response.status === "in_progress", response.status);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const queued = await client.responses.create({ model, input: "[[sim:text=Blue.]]", background: true });
assert.equal(queued.status, "queued");
assert.equal(queued.background, true);
const done = await poll(queued.id);
assert.equal(done.status, "completed");
assert.equal(done.output_text, "Blue.");
await waitForEvent(queued.id, "response.completed");

// A stream that the client leaves, and resumes after the last event.
const text = "one two three four five six seven eight nine ten";
const stream = await client.responses.create({ model, input: `[[sim:text=${text}]]`, background: true, stream: true });
let id, last, seen = "";
for await (const event of stream) {
  if (event.type === "response.created") id = event.response.id;
  if (event.type === "response.output_text.delta") seen += event.delta;
  last = event.sequence_number;
  if (seen) break;
}
let final;
for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: last })) {
  assert.ok(event.sequence_number > last);
  last = event.sequence_number;
  if (event.type === "response.output_text.delta") seen += event.delta;
  if (event.type === "response.completed") final = event.response;
}
assert.equal(seen, text);
assert.equal(final.status, "completed");
const again = await client.responses.stream({ response_id: id, starting_after: undefined }).finalResponse();
assert.equal(again.output_text, text);
await waitForEvent(id, "response.completed");

// A cancellation.
const slow = await client.responses.create({ model, input: "[[sim:delay=60s]] Hi.", background: true });
const cancelled = await client.responses.cancel(slow.id);
assert.equal(cancelled.status, "cancelled");
assert.equal((await client.responses.retrieve(slow.id)).status, "cancelled");
await waitForEvent(slow.id, "response.cancelled");

// A failure.
const failing = await client.responses.create({ model, input: "[[sim:error=500]]", background: true });
const failed = await poll(failing.id);
assert.equal(failed.status, "failed");
assert.equal(failed.error.code, "server_error");
await waitForEvent(failing.id, "response.failed");

await assert.rejects(client.responses.create({ model, input: "x", background: true, store: false }), { status: 400, param: "store" });
assert.equal(new Set(deliveries.map((e) => e.id)).size, deliveries.length);
receiver.close();
process.exit(0);
