// The shared conversation in Anthropic's format, with the published npm package.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const { BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, PERSON, PIXEL, SIMULATED } = process.env;
const client = new Anthropic({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0 });
const sim = (input) => (SIMULATED ? ` [[sim:${input}]]` : "");
const ask = (content, more) => ({ model: MODEL, max_tokens: 1024, messages: [{ role: "user", content }], ...more });

// Text, plain and streamed.
const plain = await client.messages.create(ask("What is the answer?" + sim("text=" + SPOKEN), { system: "Be brief." }));
assert.equal(plain.content[0].text, SPOKEN);
assert.equal(plain.stop_reason, "end_turn");
assert.ok(plain.usage.input_tokens > 0 && plain.usage.output_tokens > 0, JSON.stringify(plain.usage));
assert.match(plain._request_id, /^req_/);
console.log("ok: text");

let text = "";
const stream = client.messages.stream(ask("What is the answer?" + sim("text=" + SPOKEN)));
stream.on("text", (delta) => (text += delta));
const streamed = await stream.finalMessage();
assert.equal(streamed.content[0].text, SPOKEN);
assert.equal(text, SPOKEN);
assert.ok(streamed.usage.output_tokens > 0, JSON.stringify(streamed.usage));
console.log("ok: streaming");

// Tools over two turns, and a streamed call.
const tools = [{ name: TOOL, description: "Reads the weather.", input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } }];
const question = "How is the weather in Paris?" + sim(`script=tool:${TOOL}${ARGS};text:${SPOKEN}`);
const first = await client.messages.create(ask(question, { tools }));
const use = first.content.find((block) => block.type === "tool_use");
assert.equal(first.stop_reason, "tool_use");
assert.equal(use.name, TOOL);
assert.deepEqual(use.input, JSON.parse(ARGS));
const second = await client.messages.create({
  ...ask(question, { tools }),
  messages: [
    { role: "user", content: question },
    { role: "assistant", content: first.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "sunny" }] },
  ],
});
assert.equal(second.content[0].text, SPOKEN);
const calling = await client.messages.stream(ask(question, { tools })).finalMessage();
assert.equal(calling.stop_reason, "tool_use");
assert.deepEqual(calling.content.find((block) => block.type === "tool_use").input, JSON.parse(ARGS));
console.log("ok: tools");

// Structured output and an image.
const schema = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const described = await client.messages.create(ask("Describe a person" + sim("text=" + PERSON), { output_config: { format: { type: "json_schema", schema } } }));
assert.deepEqual(JSON.parse(described.content[0].text), JSON.parse(PERSON));
console.log("ok: structured output");
const shown = await client.messages.create(ask([
  { type: "text", text: "What is this?" + sim("text=" + SPOKEN) },
  { type: "image", source: { type: "base64", media_type: "image/png", data: PIXEL } },
]));
assert.equal(shown.content[0].text, SPOKEN);
console.log("ok: images");

// Counting, models, errors and cancellation.
if (SIMULATED) {
  assert.ok((await client.messages.countTokens({ model: MODEL, messages: [{ role: "user", content: "One two three" }] })).input_tokens > 3);
}
const models = [];
for await (const model of client.models.list({ limit: 50 })) models.push(model);
assert.ok(models.some((model) => model.id === MODEL && model.type === "model"), models.length);
assert.equal((await client.models.retrieve(MODEL)).id, MODEL);
await assert.rejects(client.messages.create({ ...ask("hi"), model: "no-such-model" }), (e) => e instanceof Anthropic.NotFoundError && e.error.error.type === "not_found_error");
await assert.rejects(client.messages.create({ ...ask("hi"), max_tokens: 0 }), (e) => e instanceof Anthropic.BadRequestError && /max_tokens/.test(e.message));
const wrong = new Anthropic({ baseURL: BASE_URL, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(wrong.messages.create(ask("hi")), Anthropic.AuthenticationError);
if (SIMULATED) {
  await assert.rejects(client.messages.create(ask("[[sim:error=429]]")), Anthropic.RateLimitError);
  console.log("ok: errors");
  const slow = client.messages.stream(ask("[[sim:length=500]] [[sim:chunk_delay=50ms]]"));
  slow.once("text", () => slow.abort());
  await assert.rejects(slow.finalMessage(), Anthropic.APIUserAbortError);
  console.log("ok: cancel");
}

// Message batches.
let batch = await client.messages.batches.create({ requests: [{ custom_id: "a", params: ask("hi") }, { custom_id: "b", params: { ...ask("hi"), model: "no-such-model" } }] });
assert.equal(batch.processing_status, "in_progress");
for (let n = 0; batch.processing_status !== "ended" && n < 600; n++) {
  await new Promise((resolve) => setTimeout(resolve, 50));
  batch = await client.messages.batches.retrieve(batch.id);
}
assert.deepEqual(batch.request_counts, { processing: 0, succeeded: 1, errored: 1, canceled: 0, expired: 0 });
const results = {};
for await (const line of await client.messages.batches.results(batch.id)) results[line.custom_id] = line.result;
assert.equal(results.a.message.type, "message");
assert.equal(results.b.error.error.type, "not_found_error");
const batches = [];
for await (const found of client.messages.batches.list()) batches.push(found.id);
assert.ok(batches.includes(batch.id));
