// The shared conversation, with the published LangChain.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { MODULES, BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, PERSON, PIXEL } = process.env;
const require = createRequire(MODULES);
const { ChatOpenAI } = require("@langchain/openai");
const { HumanMessage, SystemMessage, ToolMessage } = require("@langchain/core/messages");

const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, maxRetries: 0, configuration: { baseURL: BASE_URL } });

// Chat, plain and streamed.
const plain = await model.invoke([new SystemMessage("Be brief."), new HumanMessage("What is the answer?")]);
assert.equal(plain.content, SPOKEN);
assert.equal(plain.usage_metadata.total_tokens, plain.usage_metadata.input_tokens + plain.usage_metadata.output_tokens);

let text = "";
for await (const chunk of await model.stream("What is the answer?")) text += chunk.content;
assert.equal(text, SPOKEN);

// Tools: two turns, and a streamed call.
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const bound = model.bindTools([{ type: "function", function: { name: TOOL, description: "The weather of a city", parameters } }]);
const question = new HumanMessage("How is the weather in Paris?");
const calling = await bound.invoke([question]);
assert.equal(calling.tool_calls.length, 1);
assert.equal(calling.tool_calls[0].name, TOOL);
assert.deepEqual(calling.tool_calls[0].args, JSON.parse(ARGS));
const answer = await bound.invoke([question, calling, new ToolMessage({ content: "sunny", tool_call_id: calling.tool_calls[0].id })]);
assert.equal(answer.content, SPOKEN);
let streamed;
for await (const chunk of await bound.stream([question])) streamed = streamed ? streamed.concat(chunk) : chunk;
assert.deepEqual(streamed.tool_calls[0].args, JSON.parse(ARGS));

// Structured output and an image.
const person = { title: "person", type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const described = await model.withStructuredOutput(person, { name: "person", method: "jsonSchema" }).invoke("Describe a person");
assert.deepEqual(described, JSON.parse(PERSON));
const image = await model.invoke([new HumanMessage({ content: [{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url: "data:image/png;base64," + PIXEL } }] })]);
assert.equal(image.content, SPOKEN);

// The Responses API.
const responses = new ChatOpenAI({ model: MODEL, apiKey: KEY, maxRetries: 0, useResponsesApi: true, configuration: { baseURL: BASE_URL } });
assert.equal((await responses.invoke("What is the answer?")).text, SPOKEN);
text = "";
for await (const chunk of await responses.stream("What is the answer?")) text += chunk.text;
assert.equal(text, SPOKEN);
const tooled = responses.bindTools([{ type: "function", function: { name: TOOL, description: "The weather of a city", parameters } }]);
const asked = await tooled.invoke([question]);
assert.deepEqual(asked.tool_calls[0].args, JSON.parse(ARGS));
assert.equal((await tooled.invoke([question, asked, new ToolMessage({ content: "sunny", tool_call_id: asked.tool_calls[0].id })])).text, SPOKEN);

// Errors keep their status.
const unknown = new ChatOpenAI({ model: "no-such-model", apiKey: KEY, maxRetries: 0, configuration: { baseURL: BASE_URL } });
await assert.rejects(unknown.invoke("Hi"), (e) => e.status === 404 && e.code === "model_not_found");
