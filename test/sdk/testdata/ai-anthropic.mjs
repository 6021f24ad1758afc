// The shared conversation in Anthropic's format, with the published AI SDK from Vercel.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { MODULES, BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, PERSON, PIXEL, SIMULATED } = process.env;
const require = createRequire(MODULES);
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { generateText, streamText, jsonSchema, tool, stepCountIs, isStepCount, Output, APICallError } = await load("ai");
const { createAnthropic } = await load("@ai-sdk/anthropic");
globalThis.AI_SDK_LOG_WARNINGS = false;

const provider = createAnthropic({ baseURL: BASE_URL + "/v1", apiKey: KEY });
const base = { model: provider(MODEL), maxRetries: 0, maxOutputTokens: 1024 };
const sim = (input) => (SIMULATED ? ` [[sim:${input}]]` : "");
const seen = [];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = { [TOOL]: tool({ inputSchema: jsonSchema(parameters), execute: (given) => (seen.push(given), "sunny") }) };
const stopWhen = (stepCountIs ?? isStepCount)(5);

// Text, plain and streamed.
const plain = await generateText({ ...base, instructions: "Be brief.", prompt: "What is the answer?" + sim("text=" + SPOKEN) });
assert.equal(plain.text, SPOKEN);
assert.equal(plain.finishReason, "stop");
assert.ok(plain.usage.totalTokens > 0);
const streamed = streamText({ ...base, prompt: "What is the answer?" + sim("text=" + SPOKEN) });
assert.equal(await streamed.text, SPOKEN);
assert.ok((await streamed.usage).totalTokens > 0);

// Tools: the SDK's own loop, and a streamed call.
const question = "How is the weather in Paris?" + sim(`script=tool:${TOOL}${ARGS};text:${SPOKEN}`);
const loop = await generateText({ ...base, prompt: question, tools, stopWhen });
assert.equal(loop.text, SPOKEN);
const calling = streamText({ ...base, prompt: question, tools });
assert.equal(await calling.finishReason, "tool-calls");
assert.deepEqual(seen, [JSON.parse(ARGS), JSON.parse(ARGS)]);

// Structured output and an image.
const person = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const described = await generateText({ ...base, prompt: "Describe a person" + sim("text=" + PERSON), output: Output.object({ schema: jsonSchema(person) }),
  providerOptions: { anthropic: { structuredOutputMode: "outputFormat" } } });
assert.deepEqual(described.output, JSON.parse(PERSON));
const picture = { role: "user", content: [{ type: "text", text: "What is this?" + sim("text=" + SPOKEN) }, { type: "image", image: PIXEL, mediaType: "image/png" }] };
assert.equal((await generateText({ ...base, messages: [picture] })).text, SPOKEN);

// Errors and cancellation.
await assert.rejects(generateText({ ...base, model: provider("no-such-model"), prompt: "hi" }), (e) => APICallError.isInstance(e) && e.statusCode === 404);
if (SIMULATED) {
  const abort = new AbortController();
  const slow = streamText({ ...base, prompt: "[[sim:length=500]] [[sim:chunk_delay=50ms]]", abortSignal: abort.signal, onError() {} });
  let parts = 0;
  for await (const part of slow.fullStream) {
    if (part.type === "text-delta" && ++parts === 2) abort.abort();
  }
  assert.ok(parts < 500, parts);
}
