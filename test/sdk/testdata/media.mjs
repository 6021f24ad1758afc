// Images, speech and videos with the published npm package. The files stay in FOLDER
// for the test to check.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setTimeout } from "node:timers/promises";
import OpenAI, { toFile } from "openai";

const { BASE_URL, KEY, FOLDER, IMAGE, SPEECH, VOICE, VIDEO, MASKS, MP3 } = process.env;
const client = new OpenAI({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0 });
const sum = (data) => createHash("sha256").update(data).digest("hex");
const source = FOLDER + "/source.png";

const fetched = async (url) => {
  const answer = await fetch(url);
  assert.equal(answer.status, 200, url);
  return Buffer.from(await answer.arrayBuffer());
};

// Images: as base64 and as a URL.
const prompt = "A toll house by the sea";
const two = await client.images.generate({ model: IMAGE, prompt, n: 2, size: "1024x1024" });
assert.equal(two.data.length, 2);
await writeFile(FOLDER + "/drawn.png", Buffer.from(two.data[1].b64_json, "base64"));
const asked = await client.images.generate({ model: IMAGE, prompt, size: "1024x1024", response_format: "b64_json" });
const linked = await client.images.generate({ model: IMAGE, prompt, size: "1024x1024", response_format: "url" });
assert.equal(linked.data[0].b64_json, undefined);
assert.equal(sum(await fetched(linked.data[0].url)), sum(Buffer.from(asked.data[0].b64_json, "base64")));

// Edits: one image from a stream with a mask, and two images.
const mask = MASKS ? { mask: await toFile(readFile(source), "mask.png", { type: "image/png" }) } : {};
const edited = await client.images.edit({ model: IMAGE, prompt: "Add a dog", image: createReadStream(source), n: 1, ...mask });
await writeFile(FOLDER + "/edited.png", Buffer.from(edited.data[0].b64_json, "base64"));
const files = await Promise.all(["a.png", "b.png"].map((name) => toFile(readFile(source), name, { type: "image/png" })));
const joined = await client.images.edit({ model: IMAGE, prompt: "Join them", image: files });
await writeFile(FOLDER + "/joined.png", Buffer.from(joined.data[0].b64_json, "base64"));

// Speech, streamed into files.
const say = (format) => client.audio.speech.create({ model: SPEECH, voice: VOICE, input: "The gate is open.", response_format: format });
await pipeline(Readable.fromWeb((await say("wav")).body), createWriteStream(FOLDER + "/speech.wav"));
if (MP3) {
  await pipeline(Readable.fromWeb((await say("mp3")).body), createWriteStream(FOLDER + "/speech.mp3"));
} else {
  await assert.rejects(say("mp3"), (e) => e instanceof OpenAI.BadRequestError && e.code === "invalid_parameter");
}

// Videos. The package has no polling helper.
const ready = async (video) => {
  assert.equal(video.status, "queued");
  for (let progress = 0; ["queued", "in_progress"].includes(video.status); ) {
    await setTimeout(50);
    video = await client.videos.retrieve(video.id);
    assert.ok(video.progress >= progress, `${video.progress} after ${progress}`);
    progress = video.progress;
  }
  assert.equal(video.status, "completed", JSON.stringify(video));
  return video;
};
const downloaded = async (id, query) => Buffer.from(await (await client.videos.downloadContent(id, query)).arrayBuffer());

const wanted = { model: VIDEO, prompt: "Carts pass the gate", seconds: "4", size: "1280x720" };
const inForm = await client.videos.create(wanted);
const inJSON = await client.post("/videos", { body: wanted });
const fromFile = await client.videos.create({ ...wanted, input_reference: createReadStream(source) });
const image_url = "data:image/png;base64," + (await readFile(source)).toString("base64");
const fromObject = await client.videos.create({ ...wanted, input_reference: { image_url } });
const made = [inForm, inJSON, fromFile, fromObject];
for (const [i, video] of made.entries()) {
  const done = await ready(video);
  assert.equal(done.progress, 100);
  assert.equal(done.seconds, "4");
  assert.equal(done.size, "1280x720");
  assert.equal(done.error, null);
  const content = await downloaded(done.id);
  assert.equal(sum(await fetched(done.url)), sum(content));
  await writeFile(`${FOLDER}/video${i}.mp4`, content);
}

const listed = [];
for await (const video of client.videos.list({ limit: 3, order: "asc" })) if (video.model === VIDEO) listed.push(video.id);
assert.deepEqual(listed, made.map((video) => video.id));

const gone = await client.videos.delete(inForm.id);
assert.deepEqual([gone.id, gone.object, gone.deleted], [inForm.id, "video.deleted", true]);
await assert.rejects(client.videos.retrieve(inForm.id), OpenAI.NotFoundError);
await assert.rejects(client.videos.downloadContent(inForm.id), OpenAI.NotFoundError);

// Errors keep their type.
await assert.rejects(client.videos.create({ ...wanted, size: "large" }), (e) => e instanceof OpenAI.BadRequestError && e.param === "size");
