/** One server-sent event. */
export interface ServerSentEvent {
  id: string;
  event: string;
  data: string;
}

/** Reads the server-sent events of a response, such as a streamed chat completion. */
export async function* serverSentEvents(response: Response): AsyncGenerator<ServerSentEvent, void, undefined> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  let current: ServerSentEvent = { id: "", event: "message", data: "" };
  let hasData = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return; // an event without an empty line after it is incomplete
      buffer += value;
      for (let end = buffer.search(/\r?\n/); end >= 0; end = buffer.search(/\r?\n/)) {
        const line = buffer.slice(0, end);
        buffer = buffer.slice(end + (buffer[end] === "\r" ? 2 : 1));
        if (line === "") {
          if (hasData) yield current;
          current = { id: current.id, event: "message", data: "" };
          hasData = false;
          continue;
        }
        const colon = line.indexOf(":");
        const name = colon < 0 ? line : line.slice(0, colon);
        const text = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
        if (name === "data") {
          current.data = hasData ? current.data + "\n" + text : text;
          hasData = true;
        } else if (name === "id" || name === "event") {
          current[name] = text;
        }
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
