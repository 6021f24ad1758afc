// Clients of other gateways and providers, and libraries around the OpenAI package: text, a stream, tools, and embeddings.
import assert from "node:assert/strict";
import Instructor from "@instructor-ai/instructor";
import { Mistral } from "@mistralai/mistralai";
import { createOpenRouter } from "@openrouter/ai-sdk-provider";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";
import OpenAI from "openai";
import { Portkey } from "portkey-ai";
import Together from "together-ai";
import { z } from "zod/v3"; // instructor's version

const { BASE_URL, KEY, MODEL, EMBEDDINGS, SPOKEN, TOOL, ARGS, PERSON } = process.env;
const baseURL = BASE_URL + "/v1";
const question = `How is the weather in Paris? [[sim:script=tool:${TOOL}${ARGS};text:${SPOKEN}]]`;
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const tools = [{ type: "function", function: { name: TOOL, description: "Reads the weather.", parameters } }];
const user = (content) => [{ role: "user", content }];

// together-ai and portkey-ai have the shape of the OpenAI package.
for (const client of [new Together({ baseURL, apiKey: KEY, maxRetries: 0 }), new Portkey({ baseURL, apiKey: KEY, Authorization: "Bearer " + KEY })]) {
  const name = client.constructor.name;
  const plain = await client.chat.completions.create({ model: MODEL, messages: user(`Hi. [[sim:text=${SPOKEN}]]`) });
  assert.equal(plain.choices[0].message.content, SPOKEN, name);
  let text = "";
  for await (const chunk of await client.chat.completions.create({ model: MODEL, messages: user(`Hi. [[sim:text=${SPOKEN}]]`), stream: true })) text += chunk.choices[0]?.delta?.content ?? "";
  assert.equal(text, SPOKEN, name);
  const call = (await client.chat.completions.create({ model: MODEL, messages: user(question), tools })).choices[0].message;
  assert.deepEqual(JSON.parse(call.tool_calls[0].function.arguments), JSON.parse(ARGS), name);
  const after = await client.chat.completions.create({ model: MODEL, tools, messages: [...user(question), call, { role: "tool", tool_call_id: call.tool_calls[0].id, content: "sunny" }] });
  assert.equal(after.choices[0].message.content, SPOKEN, name);
  assert.ok((await client.embeddings.create({ model: EMBEDDINGS, input: "one" })).data[0].embedding.length > 0, name);
}
console.log("ok: together-ai\nok: portkey-ai");

// OpenRouter's provider for the AI SDK.
const openrouter = createOpenRouter({ baseURL, apiKey: KEY });
assert.equal(await streamText({ model: openrouter.chat(MODEL), prompt: `Hi. [[sim:text=${SPOKEN}]]` }).text, SPOKEN);
const weather = tool({ inputSchema: jsonSchema(parameters), execute: () => "sunny" });
assert.equal((await generateText({ model: openrouter.chat(MODEL), prompt: question, tools: { [TOOL]: weather }, stopWhen: isStepCount(5) })).text, SPOKEN);
console.log("ok: @openrouter/ai-sdk-provider");

// Mistral's client. Its own tool_choice "any" doesn't exist in OpenAI's API.
const mistral = new Mistral({ serverURL: BASE_URL, apiKey: KEY });
assert.equal((await mistral.chat.complete({ model: MODEL, messages: user(`Hi. [[sim:text=${SPOKEN}]]`) })).choices[0].message.content, SPOKEN);
let streamed = "";
for await (const event of await mistral.chat.stream({ model: MODEL, messages: user(`Hi. [[sim:text=${SPOKEN}]]`) })) streamed += event.data.choices[0]?.delta?.content ?? "";
assert.equal(streamed, SPOKEN);
const asked = await mistral.chat.complete({ model: MODEL, messages: user(question), tools });
assert.equal(asked.choices[0].message.toolCalls[0].function.name, TOOL);
console.log("ok: @mistralai/mistralai");

// instructor, in the modes that don't depend on how a model follows a prompt.
const schema = z.object({ name: z.string(), age: z.number() });
for (const mode of ["TOOLS", "FUNCTIONS"]) {
  const client = Instructor({ client: new OpenAI({ baseURL, apiKey: KEY, maxRetries: 0 }), mode });
  const person = await client.chat.completions.create({ model: MODEL, messages: user("Describe a person."), response_model: { schema, name: "Person" }, max_retries: 0 });
  assert.equal(typeof person.age, "number", mode);
  assert.equal(typeof person.name, "string", mode);
}
console.log("ok: @instructor-ai/instructor");
