// The shared conversation, with the published AI SDK from Vercel.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { MODULES, BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, PERSON, PIXEL } = process.env;
const require = createRequire(MODULES);
const { generateText, streamText, jsonSchema, tool, stepCountIs, Output } = require("ai");
const { createOpenAI } = require("@ai-sdk/openai");
globalThis.AI_SDK_LOG_WARNINGS = false;

const provider = createOpenAI({ baseURL: BASE_URL, apiKey: KEY });
const chat = { model: provider.chat(MODEL), maxRetries: 0 };
const seen = [];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = { [TOOL]: tool({ inputSchema: jsonSchema(parameters), execute: (given) => (seen.push(given), "sunny") }) };
const stopWhen = stepCountIs(5);

// Chat, plain and streamed.
const plain = await generateText({ ...chat, system: "Be brief.", prompt: "What is the answer?" });
assert.equal(plain.text, SPOKEN);
assert.equal(plain.finishReason, "stop");
assert.equal(plain.usage.totalTokens, plain.usage.inputTokens + plain.usage.outputTokens);

const streamed = streamText({ ...chat, prompt: "What is the answer?" });
assert.equal(await streamed.text, SPOKEN);
assert.ok((await streamed.usage).totalTokens > 0);

// Tools: the SDK's own loop, and a streamed call.
const loop = await generateText({ ...chat, prompt: "How is the weather in Paris?", tools, stopWhen });
assert.equal(loop.text, SPOKEN);
const calling = streamText({ ...chat, prompt: "How is the weather in Paris?", tools });
assert.equal(await calling.finishReason, "tool-calls");
assert.deepEqual(seen, [JSON.parse(ARGS), JSON.parse(ARGS)]);

// Structured output and an image.
const person = { type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const described = await generateText({ ...chat, prompt: "Describe a person", output: Output.object({ schema: jsonSchema(person) }) });
assert.deepEqual(described.output, JSON.parse(PERSON));
const picture = { role: "user", content: [{ type: "text", text: "What is this?" }, { type: "image", image: PIXEL }] };
assert.equal((await generateText({ ...chat, messages: [picture] })).text, SPOKEN);

// Responses, the SDK's default. The second turn only references stored items.
const responses = { model: provider(MODEL), maxRetries: 0 };
const messages = [{ role: "user", content: "What is the answer?" }];
const first = await generateText({ ...responses, messages });
assert.equal(first.text, SPOKEN);
messages.push(...first.response.messages, { role: "user", content: "Sure?" });
assert.equal(await streamText({ ...responses, messages }).text, SPOKEN);
assert.equal((await generateText({ ...responses, prompt: "How is the weather in Paris?", tools, stopWhen })).text, SPOKEN);
