// OpenAI's agents SDK with its defaults: responses, a tool loop, and three ways to continue. Then with chat completions.
import assert from "node:assert/strict";
import { Agent, Runner, OpenAIProvider, run, tool, setDefaultOpenAIClient, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

const { BASE_URL, KEY, MODEL, PIXEL } = process.env;

const client = new OpenAI({ baseURL: BASE_URL + "/v1", apiKey: KEY, maxRetries: 0 });
setDefaultOpenAIClient(client);
setTracingDisabled(true);
const seen = [];
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const weather = tool({ name: "get_weather", description: "Weather.", parameters, strict: false, execute: (given) => (seen.push(given), "sunny in Oslo") });
const agent = new Agent({ name: "Helper", model: MODEL, instructions: "Be brief.", tools: [weather] });

const first = await run(agent, '[[sim:script=tool:get_weather{"city":"Oslo"}]]');
assert.deepEqual(seen, [{ city: "Oslo" }]);
assert.match(first.finalOutput, /sunny in Oslo/);
console.log("ok: tools");

const second = await run(agent, "[[sim:text=Again.]]", { previousResponseId: first.lastResponseId });
assert.equal(second.finalOutput, "Again.");
const input = await client.responses.inputItems.list(second.lastResponseId, { order: "asc" });
assert.ok(input.data.some((item) => item.type === "function_call_output"));

const streamed = await run(agent, '[[sim:script=tool:get_weather{"city":"Rome"};text:Streamed.]]', { previousResponseId: second.lastResponseId, stream: true });
for await (const _ of streamed);
assert.equal(streamed.finalOutput, "Streamed.");
console.log("ok: streaming");

const conversation = await client.conversations.create({ metadata: { topic: "demo" } });
await run(agent, "[[sim:text=Hello.]]", { conversationId: conversation.id });
const third = await run(agent, "[[sim:text=Bye.]]", { conversationId: conversation.id });
assert.equal(third.finalOutput, "Bye.");
const items = await client.conversations.items.list(conversation.id, { order: "asc" });
assert.equal(items.data.length, 4);
await client.conversations.delete(conversation.id);
console.log("ok: text");

const stored = await client.responses.retrieve(third.lastResponseId);
assert.equal(stored.output_text ?? stored.output[0].content[0].text, "Bye.");
await client.responses.delete(third.lastResponseId);
await assert.rejects(client.responses.retrieve(third.lastResponseId), (e) => e.status === 404);

// The other capabilities, with both APIs.
for (const useResponses of [true, false]) {
  const runner = new Runner({ modelProvider: new OpenAIProvider({ openAIClient: client, useResponses }) });
  const helper = new Agent({ name: "Helper", model: MODEL, tools: [weather] });
  const loop = await runner.run(helper, '[[sim:script=tool:get_weather{"city":"Oslo"};text:It is sunny.]]');
  assert.equal(loop.finalOutput, "It is sunny.");

  const typed = new Agent({ name: "Typed", model: MODEL, outputType: z.object({ name: z.string(), age: z.number() }) });
  assert.deepEqual((await runner.run(typed, 'Describe a person. [[sim:text={"name":"Ada","age":36}]]')).finalOutput, { name: "Ada", age: 36 });

  const image = [{ role: "user", content: [{ type: "input_text", text: "What is this? [[sim:text=A pixel.]]" }, { type: "input_image", image: "data:image/png;base64," + PIXEL }] }];
  assert.equal((await runner.run(helper, image)).finalOutput, "A pixel.");

  await assert.rejects(runner.run(helper, "[[sim:error=429]]"), (e) => e.status === 429);
  await assert.rejects(runner.run(new Agent({ name: "Unknown", model: "no-such-model" }), "Hi."), (e) => e.status === 404);

  const abort = new AbortController();
  const slow = await runner.run(helper, "[[sim:length=500]] [[sim:chunk_delay=50ms]]", { stream: true, signal: abort.signal });
  let parts = 0;
  try {
    for await (const event of slow) if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta" && ++parts === 2) abort.abort();
  } catch (e) {
    assert.match(e.name + e.message, /abort/i);
  }
  assert.ok(parts < 500, parts);
}
for (const name of ["structured output", "images", "errors", "cancel"]) console.log("ok: " + name);

// A handoff, and a tool that needs approval.
const specialist = new Agent({ name: "Specialist", model: MODEL });
const desk = new Agent({ name: "Desk", model: MODEL, handoffs: [specialist] });
assert.equal((await run(desk, "[[sim:script=tool:transfer_to_Specialist{};text:Handled.]]")).lastAgent.name, "Specialist");
const guarded = tool({ name: "delete_file", description: "Deletes.", parameters: z.object({ path: z.string() }), needsApproval: true, execute: () => "deleted" });
const paused = await run(new Agent({ name: "Careful", model: MODEL, tools: [guarded] }), '[[sim:script=tool:delete_file{"path":"a"};text:Deleted.]]');
assert.equal(paused.interruptions.length, 1);
paused.state.approve(paused.interruptions[0]);
assert.equal((await run(new Agent({ name: "Careful", model: MODEL, tools: [guarded] }), paused.state)).finalOutput, "Deleted.");
