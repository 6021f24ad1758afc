// The tool runner of Anthropic's SDK, which sends only new messages and continues a thread, with the published npm package.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";

const { BASE_URL, KEY, MODEL, SPOKEN, TOOL, ARGS, SIMULATED, UNSTORED } = process.env;
const sent = [];
const client = new Anthropic({
  baseURL: BASE_URL, apiKey: KEY, maxRetries: 0,
  fetch: (url, init) => {
    sent.push(JSON.parse(init.body));
    return fetch(url, init);
  },
});
const sim = (input) => (SIMULATED ? ` [[sim:${input}]]` : "");
let calls = 0;
const tool = betaTool({
  name: TOOL, description: "Reads the weather.",
  inputSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  run: (input) => {
    calls++;
    assert.deepEqual(input, JSON.parse(ARGS));
    return "sunny";
  },
});
const question = "How is the weather in Paris?" + sim(`script=tool:${TOOL}${ARGS};tool:${TOOL}${ARGS};text:${SPOKEN}`);

// Two rounds of tools, plain and streamed.
for (const stream of [false, true]) {
  calls = sent.length = 0;
  const runner = client.beta.messages.toolRunner({ model: MODEL, max_tokens: 1024, system: "Be brief.", messages: [{ role: "user", content: question }], tools: [tool], stream });
  const final = await runner.runUntilDone();
  assert.equal(final.content.at(-1).text, SPOKEN);
  assert.equal(calls, 2);
  const threads = sent.map((body) => body.thread?.type);
  if (UNSTORED) {
    // Nothing is stored, so the client sends the whole conversation again.
    assert.deepEqual(threads, ["create", "continue", "create", "continue", undefined]);
    assert.equal(sent.at(-1).messages.length, 5);
    continue;
  }
  assert.deepEqual(threads, ["create", "continue", "continue"]);
  for (const body of sent.slice(1)) {
    assert.ok(body.messages.length === 1 && !body.system && !body.tools, JSON.stringify(body));
    assert.match(body.thread.previous_message_id, /^msg_[0-9a-z]{26}$/);
  }
}
console.log("ok: tool runner");

if (SIMULATED && !UNSTORED) {
  const thread = client.beta.messages.thread({ model: MODEL, max_tokens: 1024 });
  const first = await thread.send({ role: "user", content: "One two three" });
  const second = await thread.send({ role: "user", content: "Four" + sim("text=" + SPOKEN) });
  assert.equal(second.content[0].text, SPOKEN);
  assert.ok(second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, JSON.stringify([first, second]));
  const unknown = { model: MODEL, max_tokens: 1024, messages: [], betas: ["message-threads-2026-08-12"], thread: { type: "continue", previous_message_id: "msg_1" } };
  await assert.rejects(client.beta.messages.create(unknown), Anthropic.ThreadNotFoundError);
  console.log("ok: errors");
}
