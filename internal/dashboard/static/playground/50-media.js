// Images and speech.

function imagesBody(model) {
  if (!state.prompt.trim()) {
    root.querySelector("[data-field=prompt]").focus();
    throw new Problem("Write a prompt first.", { local: true });
  }
  const body = { model, prompt: state.prompt };
  if (state.n !== "") body.n = Number(state.n);
  if (state.size) body.size = state.size;
  if (state.quality) body.quality = state.quality;
  return body;
}

class ImagesAnswer extends Answer {
  async read(response) {
    this.raw = await response.text();
    for (const [i, image] of JSON.parse(this.raw).data.entries()) {
      const url = image.url ?? "data:" + imageType(image.b64_json) + ";base64," + image.b64_json, name = `image-${i + 1}`;
      this.content.append(element("figure", {}, element("img", { src: url, alt: state.prompt.slice(0, 200), width: 320, height: 320 }),
        element("figcaption", {}, element("a", { className: "button small", href: url, download: `${name}.${imageType(image.b64_json ?? "").slice(6)}`, textContent: "Download" }))));
    }
    this.text = `${this.content.children.length} image${this.content.children.length === 1 ? "" : "s"}`;
  }

  done() {
    this.mark("good", "complete");
  }
}

// imageType reads the type of an image from its first bytes in base64.
function imageType(base64) {
  if (base64.startsWith("/9j/")) return "image/jpeg";
  return base64.startsWith("UklGR") ? "image/webp" : "image/png";
}

function speechBody(model) {
  if (!state.speech_input.trim()) {
    root.querySelector("[data-field=speech_input]").focus();
    throw new Problem("Write a text first.", { local: true });
  }
  const body = { model, input: state.speech_input, voice: state.voice, response_format: state.audio_format };
  if (state.speed !== "") body.speed = Number(state.speed);
  return body;
}

class SpeechAnswer extends Answer {
  async read(response) {
    const blob = await response.blob();
    this.raw = `(${compact.format(blob.size)} bytes of audio)`;
    this.url = URL.createObjectURL(blob);
    this.content.append(element("audio", { controls: true, src: this.url, "aria-label": "Speech" }),
      element("a", { className: "button small", href: this.url, download: "speech." + state.audio_format, textContent: "Download" }));
    this.text = "The audio is ready.";
  }

  done() {
    this.mark("good", "complete");
  }
}

// kinds are the types of requests, by tab.
const kinds = {
  chat: { path: "/v1/chat/completions", body: chatBody, Answer, models: () => state.compare ? [state.model, state.second_model] : [state.model] },
  images: { path: "/v1/images/generations", body: imagesBody, Answer: ImagesAnswer, models: () => [state.image_model] },
  speech: { path: "/v1/audio/speech", body: speechBody, Answer: SpeechAnswer, models: () => [state.speech_model] },
};
