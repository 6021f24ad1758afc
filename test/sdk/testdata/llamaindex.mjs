// LlamaIndex: chat completions, an agent, an index with retrieval, and the Responses API.
import assert from "node:assert/strict";
import { openai, openaiResponses, OpenAIEmbedding } from "@llamaindex/openai";
import { agent } from "@llamaindex/workflow";
import { Document, Settings, VectorStoreIndex, tool } from "llamaindex";
import { z } from "zod";

const { BASE_URL, KEY, EMBEDDINGS, SPOKEN, TOOL, ARGS, PERSON, PIXEL } = process.env;
const model = "gpt-4o-mini"; // it decides by the name what a model can do
const options = { model, apiKey: KEY, baseURL: BASE_URL + "/v1", maxRetries: 0 };
const llm = openai(options);
const responses = openaiResponses(options);
const spoken = ` [[sim:text=${SPOKEN}]]`;
const user = (content) => [{ role: "user", content }];
const text = (content) => (typeof content === "string" ? content : content.map((part) => part.text ?? "").join(""));

// Text, plain and streamed.
for (const each of [llm, responses]) {
  assert.equal(text((await each.chat({ messages: user("What is the answer?" + spoken) })).message.content), SPOKEN);
}
console.log("ok: text");
let streamed = "";
for await (const chunk of await llm.chat({ messages: user("What is the answer?" + spoken), stream: true })) streamed += chunk.delta;
assert.equal(streamed, SPOKEN);
console.log("ok: streaming");

// Tools over several turns, by an agent.
const seen = [];
const weather = tool({ name: TOOL, description: "Reads the weather.", parameters: z.object({ city: z.string() }), execute: (given) => (seen.push(given), "sunny") });
for (const each of [llm, responses]) {
  const run = await agent({ llm: each, tools: [weather] }).run(`How is the weather? [[sim:script=tool:${TOOL}${ARGS};tool:${TOOL}${ARGS};text:${SPOKEN}]]`);
  assert.ok(run.data.result.startsWith(SPOKEN), run.data.result); // with the Responses API, it repeats the last delta
}
assert.deepEqual(seen, Array(4).fill(JSON.parse(ARGS)));
console.log("ok: tools");

// Structured output and an image.
const person = await llm.chat({ messages: user("Describe a person." + ` [[sim:text=${PERSON}]]`), responseFormat: z.object({ name: z.string(), age: z.number() }) });
assert.deepEqual(JSON.parse(person.message.content), JSON.parse(PERSON));
console.log("ok: structured output");
const image = [{ type: "text", text: "What is this?" + spoken }, { type: "image_url", image_url: { url: "data:image/png;base64," + PIXEL } }];
assert.equal((await llm.chat({ messages: user(image) })).message.content, SPOKEN);
console.log("ok: images");

// Errors keep their status.
await assert.rejects(llm.chat({ messages: user("[[sim:error=429]]") }), (e) => e.status === 429);
await assert.rejects(openai({ ...options, model: "no-such-model" }).chat({ messages: user("Hi.") }), (e) => e.status === 404);
console.log("ok: errors");

// A loop that ends early cancels the request.
let parts = 0;
for await (const _ of await llm.chat({ messages: user("[[sim:length=500]] [[sim:chunk_delay=50ms]]"), stream: true })) if (++parts === 2) break;
assert.equal(parts, 2);
console.log("ok: cancel");

// Retrieval.
Settings.llm = llm;
Settings.embedModel = new OpenAIEmbedding({ ...options, model: EMBEDDINGS });
const index = await VectorStoreIndex.fromDocuments([new Document({ text: "Turnpikes were toll roads." })]);
assert.match((await index.asQueryEngine().query({ query: "What were turnpikes?" })).message.content, /simulated/);
