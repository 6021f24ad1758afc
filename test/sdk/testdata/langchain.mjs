// The shared conversation, with the published LangChain.
import assert from "node:assert/strict";
import { ChatOpenAI } from "@langchain/openai";
import { HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";

const { BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, PERSON, PIXEL, SIMULATED } = process.env;

const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, maxRetries: 0, configuration: { baseURL: BASE_URL + "/v1" } });
const sim = (input) => (SIMULATED ? ` [[sim:${input}]]` : "");
const spoken = sim("text=" + SPOKEN);

// Chat, plain and streamed.
const plain = await model.invoke([new SystemMessage("Be brief."), new HumanMessage("What is the answer?" + spoken)]);
assert.equal(plain.content, SPOKEN);
assert.equal(plain.usage_metadata.total_tokens, plain.usage_metadata.input_tokens + plain.usage_metadata.output_tokens);

let text = "";
for await (const chunk of await model.stream("What is the answer?" + spoken)) text += chunk.content;
assert.equal(text, SPOKEN);

// Tools: two turns, and a streamed call.
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const bound = model.bindTools([{ type: "function", function: { name: TOOL, description: "The weather of a city", parameters } }]);
const question = new HumanMessage("How is the weather in Paris?" + sim(`script=tool:${TOOL}${ARGS};text:${SPOKEN}`));
const calling = await bound.invoke([question]);
assert.equal(calling.tool_calls.length, 1);
assert.equal(calling.tool_calls[0].name, TOOL);
assert.deepEqual(calling.tool_calls[0].args, JSON.parse(ARGS));
const answer = await bound.invoke([question, calling, new ToolMessage({ content: "sunny", tool_call_id: calling.tool_calls[0].id })]);
assert.equal(answer.content, SPOKEN);
let streamed;
for await (const chunk of await bound.stream([question])) streamed = streamed ? streamed.concat(chunk) : chunk;
assert.deepEqual(streamed.tool_calls[0].args, JSON.parse(ARGS));
console.log("ok: tools");

// Structured output and an image.
const person = { title: "person", type: "object", properties: { name: { type: "string" }, age: { type: "integer" } }, required: ["name", "age"], additionalProperties: false };
const described = await model.withStructuredOutput(person, { name: "person", method: "jsonSchema" }).invoke("Describe a person" + sim("text=" + PERSON));
assert.deepEqual(described, JSON.parse(PERSON));
console.log("ok: structured output");
const image = await model.invoke([new HumanMessage({ content: [{ type: "text", text: "What is this?" + spoken }, { type: "image_url", image_url: { url: "data:image/png;base64," + PIXEL } }] })]);
assert.equal(image.content, SPOKEN);
console.log("ok: images");

// The Responses API.
const responses = new ChatOpenAI({ model: MODEL, apiKey: KEY, maxRetries: 0, useResponsesApi: true, configuration: { baseURL: BASE_URL + "/v1" } });
assert.equal((await responses.invoke("What is the answer?" + spoken)).text, SPOKEN);
console.log("ok: text");
text = "";
for await (const chunk of await responses.stream("What is the answer?" + spoken)) text += chunk.text;
assert.equal(text, SPOKEN);
console.log("ok: streaming");
const tooled = responses.bindTools([{ type: "function", function: { name: TOOL, description: "The weather of a city", parameters } }]);
const asked = await tooled.invoke([question]);
assert.deepEqual(asked.tool_calls[0].args, JSON.parse(ARGS));
assert.equal((await tooled.invoke([question, asked, new ToolMessage({ content: "sunny", tool_call_id: asked.tool_calls[0].id })])).text, SPOKEN);

// Errors keep their status.
const unknown = new ChatOpenAI({ model: "no-such-model", apiKey: KEY, maxRetries: 0, configuration: { baseURL: BASE_URL + "/v1" } });
await assert.rejects(unknown.invoke("Hi"), (e) => e.status === 404 && e.code === "model_not_found");
if (SIMULATED) {
  await assert.rejects(model.invoke("[[sim:error=429]]"), (e) => e.status === 429);
  console.log("ok: errors");
  for (const slow of [model, responses]) {
    const abort = new AbortController();
    let parts = 0;
    const stop = async () => {
      for await (const _ of await slow.stream("[[sim:length=500]] [[sim:chunk_delay=50ms]]", { signal: abort.signal })) if (++parts === 2) abort.abort();
    };
    await assert.rejects(stop(), (e) => /abort/i.test(e.name + e.message));
    assert.ok(parts < 500, parts);
  }
  console.log("ok: cancel");
}
