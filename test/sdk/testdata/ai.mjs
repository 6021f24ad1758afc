// The shared conversation, with the published AI SDK from Vercel and one of its providers.
import assert from "node:assert/strict";
import { generateText, streamText, jsonSchema, tool, isStepCount, Output, APICallError } from "ai";

const { PACKAGES, BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, PERSON, PIXEL, SIMULATED } = process.env;
const name = PACKAGES.split(" ")[1];
const provider = await import(name);
globalThis.AI_SDK_LOG_WARNINGS = false;

const sim = (input) => (SIMULATED ? ` [[sim:${input}]]` : "");
const spoken = sim("text=" + SPOKEN);
const question = "How is the weather in Paris?" + sim(`script=tool:${TOOL}${ARGS};text:${SPOKEN}`);
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const person = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const stopWhen = isStepCount(5);
const seen = [];
const tools = { [TOOL]: tool({ inputSchema: jsonSchema(parameters), execute: (given) => (seen.push(given), "sunny") }) };

async function converse(create) {
  const base = { model: create(MODEL), maxRetries: 0, maxOutputTokens: 1024 };
  seen.length = 0;

  // Text, plain and streamed.
  const plain = await generateText({ ...base, instructions: "Be brief.", prompt: "What is the answer?" + spoken });
  assert.equal(plain.text, SPOKEN);
  assert.equal(plain.finishReason, "stop");
  assert.equal(plain.usage.totalTokens, plain.usage.inputTokens + plain.usage.outputTokens);
  console.log("ok: text");
  const streamed = streamText({ ...base, prompt: "What is the answer?" + spoken });
  assert.equal(await streamed.text, SPOKEN);
  assert.ok((await streamed.usage).totalTokens > 0);
  console.log("ok: streaming");

  // Tools: the SDK's own loop, and a streamed call.
  const loop = await generateText({ ...base, prompt: question, tools, stopWhen });
  assert.equal(loop.text, SPOKEN);
  const calling = streamText({ ...base, prompt: question, tools });
  assert.equal(await calling.finishReason, "tool-calls");
  assert.deepEqual(seen, [JSON.parse(ARGS), JSON.parse(ARGS)]);
  console.log("ok: tools");

  // Structured output and an image.
  const described = await generateText({ ...base, prompt: "Describe a person" + sim("text=" + PERSON), output: Output.object({ schema: jsonSchema(person) }),
    providerOptions: { anthropic: { structuredOutputMode: "outputFormat" } } });
  assert.deepEqual(described.output, JSON.parse(PERSON));
  console.log("ok: structured output");
  const image = { role: "user", content: [{ type: "text", text: "What is this?" + spoken }, { type: "file", data: PIXEL, mediaType: "image/png" }] };
  assert.equal((await generateText({ ...base, messages: [image] })).text, SPOKEN);
  console.log("ok: images");

  // Errors and cancellation.
  await assert.rejects(generateText({ ...base, model: create("no-such-model"), prompt: "hi" }), (e) => APICallError.isInstance(e) && e.statusCode === 404);
  if (!SIMULATED) return;
  await assert.rejects(generateText({ ...base, prompt: "[[sim:error=429]]" }), (e) => APICallError.isInstance(e) && e.statusCode === 429 && e.isRetryable);
  console.log("ok: errors");
  const abort = new AbortController();
  let parts = 0;
  const slow = streamText({ ...base, prompt: "[[sim:length=500]] [[sim:chunk_delay=50ms]]", abortSignal: abort.signal, onError() {} });
  for await (const part of slow.fullStream) {
    if (part.type === "text-delta" && ++parts === 2) abort.abort();
  }
  assert.ok(parts < 500, parts);
  console.log("ok: cancel");
}

// Three turns, the last of them streamed. With the Responses API, later turns only reference stored items.
async function continues(create) {
  const base = { model: create(MODEL), maxRetries: 0 };
  const messages = [{ role: "user", content: "What is the answer?" + spoken }];
  const first = await generateText({ ...base, messages });
  assert.equal(first.text, SPOKEN);
  messages.push(...(first.responseMessages ?? first.response.messages), { role: "user", content: "Sure?" + spoken });
  assert.equal(await streamText({ ...base, messages }).text, SPOKEN);
  assert.equal((await generateText({ ...base, prompt: question, tools, stopWhen })).text, SPOKEN);
}

switch (name) {
  case "@ai-sdk/openai": {
    const openai = provider.createOpenAI({ baseURL: BASE_URL + "/v1", apiKey: KEY });
    await converse(openai.chat);
    if (SIMULATED) await converse(openai);
    await continues(openai); // the default is the Responses API
    break;
  }
  case "@ai-sdk/anthropic":
    await converse(provider.createAnthropic({ baseURL: BASE_URL + "/v1", apiKey: KEY }));
    break;
  case "@ai-sdk/open-responses": {
    const open = provider.createOpenResponses({ name: "turnpike", url: BASE_URL + "/v1/responses", apiKey: KEY });
    await converse(open);
    await continues(open);
    break;
  }
  case "@ai-sdk/openai-compatible":
    await converse(provider.createOpenAICompatible({ name: "turnpike", baseURL: BASE_URL + "/v1", apiKey: KEY, supportsStructuredOutputs: true, includeUsage: true }));
    break;
}
