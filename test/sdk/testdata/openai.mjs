// The same conversation as the Go SDK's, with the published npm package.
import assert from "node:assert/strict";
import OpenAI, { AzureOpenAI } from "openai";

const { BASE_URL, KEY, MODEL, EMBEDDINGS, SPOKEN, TOOL, ARGS, PERSON, PIXEL, SIMULATED } = process.env;
const client = new OpenAI({ baseURL: BASE_URL + "/v1", apiKey: KEY, maxRetries: 0 });
const sim = (input) => (SIMULATED ? ` [[sim:${input}]]` : "");
const spoken = sim("text=" + SPOKEN);
const question = "How is the weather in Paris?" + sim(`script=tool:${TOOL}${ARGS};text:${SPOKEN}`);
const args = JSON.parse(ARGS);
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const user = (content) => [{ role: "user", content }];

// Chat, plain and streamed.
const plain = await client.chat.completions.create({ model: MODEL, messages: user("What is the answer?" + spoken) });
assert.equal(plain.choices[0].message.content, SPOKEN);
assert.equal(plain.choices[0].finish_reason, "stop");
assert.equal(plain.usage.total_tokens, plain.usage.prompt_tokens + plain.usage.completion_tokens);

const stream = client.chat.completions.stream({ model: MODEL, messages: user("What is the answer?" + spoken), stream_options: { include_usage: true } });
const streamed = await stream.finalChatCompletion();
assert.equal(streamed.choices[0].message.content, SPOKEN);
assert.equal(streamed.choices[0].finish_reason, "stop");
assert.ok(streamed.usage.total_tokens > 0 && "credits" in streamed.usage, JSON.stringify(streamed.usage));

// Tools: the package's own loop, and a streamed call.
const seen = [];
const runner = client.chat.completions.runTools({
  model: MODEL,
  messages: user(question),
  tools: [{ type: "function", function: { name: TOOL, parameters, parse: JSON.parse, function: (given) => (seen.push(given), "sunny") } }],
});
assert.equal(await runner.finalContent(), SPOKEN);
assert.deepEqual(seen, [args]);

const tools = [{ type: "function", function: { name: TOOL, parameters } }];
const calling = await client.chat.completions.stream({ model: MODEL, messages: user(question), tools }).finalChatCompletion();
assert.equal(calling.choices[0].finish_reason, "tool_calls");
assert.equal(calling.choices[0].message.tool_calls[0].function.name, TOOL);
assert.deepEqual(JSON.parse(calling.choices[0].message.tool_calls[0].function.arguments), args);

// Structured output and an image.
const person = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const parsed = await client.chat.completions.parse({
  model: MODEL,
  messages: user("Describe a person" + sim("text=" + PERSON)),
  response_format: { type: "json_schema", json_schema: { name: "person", strict: true, schema: person } },
});
assert.deepEqual(JSON.parse(parsed.choices[0].message.content), JSON.parse(PERSON));
console.log("ok: structured output");

const shown = await client.chat.completions.create({
  model: MODEL,
  messages: user([{ type: "text", text: "What is this?" + spoken }, { type: "image_url", image_url: { url: "data:image/png;base64," + PIXEL } }]),
});
assert.equal(shown.choices[0].message.content, SPOKEN);
console.log("ok: images");

// Responses: plain, streamed, and a tool loop.
const response = await client.responses.create({ model: MODEL, instructions: "Be brief.", input: "What is the answer?" + spoken });
assert.equal(response.output_text, SPOKEN);
assert.equal(response.status, "completed");
console.log("ok: text");

let text = "";
const events = client.responses.stream({ model: MODEL, input: "What is the answer?" + spoken });
events.on("response.output_text.delta", (event) => (text += event.delta));
assert.equal((await events.finalResponse()).output_text, SPOKEN);
assert.equal(text, SPOKEN);
console.log("ok: streaming");

const input = user(question);
const functions = [{ type: "function", name: TOOL, parameters, strict: true }];
const first = await client.responses.create({ model: MODEL, input, tools: functions });
const call = first.output.find((item) => item.type === "function_call");
assert.equal(call.name, TOOL);
assert.deepEqual(JSON.parse(call.arguments), args);
const second = await client.responses.create({
  model: MODEL,
  input: [...input, ...first.output, { type: "function_call_output", call_id: call.call_id, output: "sunny" }],
  tools: functions,
});
assert.equal(second.output_text, SPOKEN);
console.log("ok: tools");

// Embeddings. The package requests base64 and decodes it.
if (EMBEDDINGS) {
  const list = await client.embeddings.create({ model: EMBEDDINGS, input: ["one", "three"] });
  assert.equal(list.data.length, 2);
  assert.ok(list.data[1].embedding.every(Number.isFinite) && list.data[1].embedding.length > 0, JSON.stringify(list.data[1]));
} else {
  await assert.rejects(client.embeddings.create({ model: MODEL, input: "one" }), (e) => e.status === 404 && e.code === "model_not_found");
}

// Errors keep their type.
await assert.rejects(client.chat.completions.create({ model: "no-such-model", messages: user("hi") }), OpenAI.NotFoundError);
if (SIMULATED) {
  await assert.rejects(client.chat.completions.create({ model: MODEL, messages: user("[[sim:error=429]]") }), OpenAI.RateLimitError);
  await assert.rejects(client.responses.create({ model: MODEL, input: "[[sim:error=503]]" }), OpenAI.InternalServerError);
  await assert.rejects(new OpenAI({ baseURL: BASE_URL + "/v1", apiKey: "wrong", maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
  console.log("ok: errors");

  const slow = client.chat.completions.stream({ model: MODEL, messages: user("[[sim:length=500]] [[sim:chunk_delay=50ms]]") });
  slow.once("content", () => slow.abort());
  await assert.rejects(slow.finalChatCompletion(), OpenAI.APIUserAbortError);
  const long = client.responses.stream({ model: MODEL, input: "[[sim:length=500]] [[sim:chunk_delay=50ms]]" });
  long.on("response.output_text.delta", () => long.abort());
  await assert.rejects(long.finalResponse(), OpenAI.APIUserAbortError);
  console.log("ok: cancel");

  // The client for Azure OpenAI.
  const azure = new AzureOpenAI({ endpoint: BASE_URL, apiKey: KEY, apiVersion: "2025-04-01-preview", deployment: MODEL, maxRetries: 0 });
  assert.equal((await azure.chat.completions.create({ model: MODEL, messages: user("Hi." + spoken) })).choices[0].message.content, SPOKEN);
}
