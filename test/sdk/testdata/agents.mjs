// OpenAI's agents SDK with its defaults: responses, a tool loop, and three ways to continue.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { MODULES, BASE_URL, KEY } = process.env;
const require = createRequire(MODULES);
const { Agent, run, tool, setDefaultOpenAIClient, setTracingDisabled } = require("@openai/agents");
const OpenAI = require("openai").default ?? require("openai");

const client = new OpenAI({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0 });
setDefaultOpenAIClient(client);
setTracingDisabled(true);
const seen = [];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const weather = tool({ name: "get_weather", description: "Weather.", parameters, strict: false, execute: (given) => (seen.push(given), "sunny in Oslo") });
const agent = new Agent({ name: "Helper", model: "gpt-4o-mini", instructions: "Be brief.", tools: [weather] });

const first = await run(agent, '[[sim:script=tool:get_weather{"city":"Oslo"}]]');
assert.deepEqual(seen, [{ city: "Oslo" }]);
assert.match(first.finalOutput, /sunny in Oslo/);

const second = await run(agent, "[[sim:text=Again.]]", { previousResponseId: first.lastResponseId });
assert.equal(second.finalOutput, "Again.");
const input = await client.responses.inputItems.list(second.lastResponseId, { order: "asc" });
assert.ok(input.data.some((item) => item.type === "function_call_output"));

const streamed = await run(agent, '[[sim:script=tool:get_weather{"city":"Rome"};text:Streamed.]]', { previousResponseId: second.lastResponseId, stream: true });
for await (const _ of streamed);
assert.equal(streamed.finalOutput, "Streamed.");

const conversation = await client.conversations.create({ metadata: { topic: "demo" } });
await run(agent, "[[sim:text=Hello.]]", { conversationId: conversation.id });
const third = await run(agent, "[[sim:text=Bye.]]", { conversationId: conversation.id });
assert.equal(third.finalOutput, "Bye.");
const items = await client.conversations.items.list(conversation.id, { order: "asc" });
assert.equal(items.data.length, 4);
await client.conversations.delete(conversation.id);

const stored = await client.responses.retrieve(third.lastResponseId);
assert.equal(stored.output_text ?? stored.output[0].content[0].text, "Bye.");
await client.responses.delete(third.lastResponseId);
await assert.rejects(client.responses.retrieve(third.lastResponseId), (e) => e.status === 404);
