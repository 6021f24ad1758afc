// The backend of a chat page: it serves the page and creates a scoped token for each user.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { basename } from "node:path";
import { Turnpike, TurnpikeError } from "turnpike-sdk";

const baseUrl = process.env.TURNPIKE_BASE_URL;
const turnpike = new Turnpike({ baseUrl, apiKey: process.env.TURNPIKE_API_KEY });

// Replace this with the session of your application.
function signedInUser(_request) {
  return "u_42";
}

// The page loads the SDK as it is, without a bundler.
const sdk = new URL(".", import.meta.resolve("turnpike-sdk"));
const files = {
  "/": [new URL("index.html", import.meta.url), "text/html"],
  "/chat.mjs": [new URL("chat.mjs", import.meta.url), "text/javascript"],
  "/openapi-fetch.js": [new URL(import.meta.resolve("openapi-fetch")), "text/javascript"],
};

async function createToken(request, response) {
  const user = signedInUser(request);
  if (user === undefined) return response.writeHead(401).end();
  const { value, expires_at } = await turnpike.post("/v1/scoped_tokens", {
    body: { scopes: ["chat.completions:create"], expires_in: 900, metadata: { user } },
  });
  response.writeHead(200, { "Content-Type": "application/json", "Cache-Control": "no-store" });
  response.end(JSON.stringify({ value, expires_at, base_url: baseUrl }));
}

async function sendFile(path, response) {
  const [file, type] = path.startsWith("/sdk/") ? [new URL(basename(path), sdk), "text/javascript"] : files[path] ?? [];
  const content = file && (await readFile(file).catch(() => undefined));
  if (content === undefined) return response.writeHead(404).end();
  response.writeHead(200, { "Content-Type": type }).end(content);
}

const server = createServer(async (request, response) => {
  try {
    if (request.method === "POST" && request.url === "/token") return await createToken(request, response);
    if (request.method === "GET") return await sendFile(request.url, response);
    response.writeHead(405).end();
  } catch (error) {
    console.error(error instanceof TurnpikeError ? `${error.code}: ${error.message}` : error);
    response.writeHead(502).end();
  }
});
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/`);
});
