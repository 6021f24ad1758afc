// Transcriptions and translations with the published npm package.
import assert from "node:assert/strict";
import { createReadStream } from "node:fs";
import { readFile } from "node:fs/promises";
import OpenAI, { toFile } from "openai";

const { BASE_URL, KEY, FILE } = process.env;
const client = new OpenAI({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0 });
const file = () => createReadStream(FILE);

const plain = await client.audio.transcriptions.create({ file: file(), model: "whisper-1" });
assert.ok(plain.text.length > 10);
assert.deepEqual(plain.usage, { type: "duration", seconds: 4 });

const tokens = await client.audio.transcriptions.create({ file: await toFile(readFile(FILE), "a.wav"), model: "gpt-4o-transcribe", language: "en", prompt: "Ferries" });
assert.equal(tokens.usage.type, "tokens");
assert.equal(tokens.usage.input_tokens, 40);

const verbose = await client.audio.transcriptions.create({ file: file(), model: "whisper-1", response_format: "verbose_json", timestamp_granularities: ["word", "segment"] });
assert.equal(verbose.duration, 4);
assert.ok(Array.isArray(verbose.segments));

for (const response_format of ["text", "srt", "vtt"]) {
  const text = await client.audio.transcriptions.create({ file: file(), model: "whisper-1", response_format });
  assert.equal(typeof text, "string");
  assert.ok(text.length > 10);
}

const diarized = await client.audio.transcriptions.create({ file: file(), model: "gpt-4o-transcribe-diarize", response_format: "diarized_json", chunking_strategy: "auto" });
assert.equal(diarized.segments[0].speaker, "A");

let deltas = "", done;
for await (const event of await client.audio.transcriptions.create({ file: file(), model: "gpt-4o-transcribe", stream: true })) {
  if (event.type === "transcript.text.delta") deltas += event.delta;
  if (event.type === "transcript.text.done") done = event;
}
assert.equal(deltas, done.text);
assert.equal(done.usage.input_tokens, 40);

const english = await client.audio.translations.create({ file: file(), model: "whisper-1" });
assert.ok(english.text.length > 10);

// Errors keep their type.
const bad = client.audio.transcriptions.create({ file: await toFile(Buffer.from("not audio at all"), "a.wav"), model: "whisper-1" });
await assert.rejects(bad, (e) => e instanceof OpenAI.BadRequestError && e.param === "file");

// A canceled stream ends.
const stream = await client.audio.transcriptions.create({ file: file(), model: "gpt-4o-transcribe", stream: true });
for await (const _ of stream) break;
assert.equal(stream.controller.signal.aborted, true);
