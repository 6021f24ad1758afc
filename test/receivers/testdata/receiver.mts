// A webhook receiver without dependencies:
//
//   WEBHOOK_SECRET=whsec_… node receiver.mjs
//
// All types are inferred, so this file is TypeScript and JavaScript. Name it
// receiver.mts to compile it, or receiver.mjs to run it with Node.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

// During a rotation there are two secrets, separated by a space.
const secrets = (process.env.WEBHOOK_SECRET ?? "").split(" ").filter((secret) => secret !== "");
if (secrets.length === 0) {
  throw new Error("set WEBHOOK_SECRET to the endpoint's secret");
}
const tolerance = 300; // seconds
const maxBody = (1 << 20) + (64 << 10); // bodies have at most 1 MiB

// The IDs of accepted deliveries. In production, use a database table with the
// ID as its primary key.
const seen = new Set();

const server = createServer(async (req, res) => {
  try {
    if (req.method !== "POST") {
      return res.writeHead(405, { Allow: "POST" }).end();
    }
    // The signature covers the raw bytes, so read them before you parse anything.
    const chunks = [];
    let size = 0;
    for await (const chunk of req) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBody) {
        return res.writeHead(413, { Connection: "close" }).end();
      }
    }
    const body = Buffer.concat(chunks);

    const timestamp = String(req.headers["service-timestamp"] ?? "");
    const age = Math.floor(Date.now() / 1000) - Number(timestamp);
    if (!/^\d+$/.test(timestamp) || Math.abs(age) > tolerance) {
      return res.writeHead(400).end("stale timestamp\n");
    }

    const signature = Buffer.from(String(req.headers["service-signature"] ?? ""));
    const valid = secrets.some((secret) => {
      const hmac = createHmac("sha256", secret).update(`${timestamp}.`).update(body);
      const expected = Buffer.from(hmac.digest("hex"));
      // timingSafeEqual throws when the lengths differ.
      return signature.length === expected.length && timingSafeEqual(signature, expected);
    });
    if (!valid) {
      return res.writeHead(401).end("invalid signature\n");
    }

    const id = String(req.headers["service-event-id"] ?? "");
    let event;
    try {
      event = JSON.parse(body.toString("utf8"));
    } catch {
      // Not JSON: rejected below.
    }
    if (id === "" || typeof event?.type !== "string") {
      return res.writeHead(400).end("not an event\n");
    }

    // Acknowledge first, duplicates too. Then do the work, only once.
    const first = !seen.has(id);
    seen.add(id);
    res.writeHead(204).end();
    if (first) {
      setImmediate(() => console.log("processed", id, event.type));
    }
  } catch {
    // The connection broke. Turnpike retries.
    res.destroy();
  }
});

server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => {
  const address = server.address();
  if (address !== null && typeof address === "object") {
    console.log(`listening on http://127.0.0.1:${address.port}/`);
  }
});
