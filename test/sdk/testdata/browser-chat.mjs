// Uses the example like its page does: the backend's token, a streamed answer and a second turn.
import assert from "node:assert/strict";
import { connect } from "./chat.mjs";

const page = process.env.PAGE;
const html = await (await fetch(page)).text();
assert.match(html, /importmap/);
for (const path of ["chat.mjs", "sdk/index.js", "sdk/client.js", "openapi-fetch.js"]) {
  const file = await fetch(new URL(path, page));
  assert.equal(file.status, 200, path);
  assert.equal(file.headers.get("content-type"), "text/javascript");
}
assert.equal((await fetch(new URL("sdk/..%2f..%2f..%2fpackage.json", page))).status, 404);

const token = await (await fetch(new URL("token", page), { method: "POST" })).json();
assert.ok(token.value.startsWith("tp_scoped_"));
assert.deepEqual(Object.keys(token).sort(), ["base_url", "expires_at", "value"]);

const ask = connect(page, "gpt-5.4-mini");
const messages = [{ role: "user", content: "Hello from a page" }];
const pieces = [];
for await (const piece of ask(messages)) pieces.push(piece);
assert.ok(pieces.length > 2, "the answer is streamed");
assert.equal(pieces.join(""), "This is a simulated answer to: Hello from a page");
messages.push({ role: "assistant", content: pieces.join("") }, { role: "user", content: "[[sim:text=Second.]]" });
let second = "";
for await (const piece of ask(messages)) second += piece;
assert.equal(second, "Second.");
messages.push({ role: "user", content: "[[sim:error=429]]" });
await assert.rejects(async () => {
  for await (const _ of ask(messages));
}, { status: 429, code: "rate_limit_exceeded" });
