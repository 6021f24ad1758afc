// Streams chat completions with a scoped token. It runs in a page, and in Node for the test.
import { cachedToken, serverSentEvents, TurnpikeError } from "turnpike-sdk";

/** Returns a function that sends the conversation and yields the pieces of the answer. */
export function connect(backend, model) {
  let baseUrl;
  const token = cachedToken(async () => {
    const response = await fetch(new URL("/token", backend), { method: "POST" });
    if (!response.ok) throw new Error(`The backend returned no token: ${response.status}`);
    const created = await response.json();
    baseUrl = created.base_url;
    return created;
  });
  return async function* ask(messages, signal) {
    const authorization = `Bearer ${await token()}`;
    const response = await fetch(`${baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { Authorization: authorization, "Content-Type": "application/json" },
      body: JSON.stringify({ model, messages, stream: true }),
      signal,
    });
    if (!response.ok) throw await TurnpikeError.from(response);
    for await (const { data } of serverSentEvents(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      yield chunk.choices[0]?.delta?.content ?? "";
    }
    throw new Error("The connection was closed before the answer was complete.");
  };
}
