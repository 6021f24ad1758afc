import type { webhooks } from "./schema.js";

/** The name of an event. */
export type EventName = keyof webhooks;

/**
 * The event of a delivery. `type` tells which one it is. Servers may send events that this version doesn't know, so
 * ignore other types.
 */
export type WebhookEvent = {
  [Name in EventName]: webhooks[Name]["post"]["requestBody"]["content"]["application/json"] & { type: Name };
}[EventName];

/** A verified delivery. */
export interface Delivery {
  /** The delivery's ID, which is the same on every retry. Ignore IDs that you have seen before. */
  id: string;
  event: WebhookEvent;
}

/** Why a delivery was rejected: return status 400 for `stale` and `malformed`, and 401 for the others. */
export type WebhookErrorCode = "missing_header" | "stale" | "invalid_signature" | "malformed";

/** A delivery that can't be trusted. */
export class WebhookError extends Error {
  override readonly name = "WebhookError";
  readonly code: WebhookErrorCode;

  constructor(code: WebhookErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** The headers of a request: of fetch, of Node or of a framework. */
export type HeadersLike = Headers | Record<string, string | string[] | undefined>;

export interface VerifyOptions {
  /** How many seconds the timestamp may differ from the clock. The default is 300. */
  tolerance?: number;
}

/**
 * Verifies that Turnpike signed a delivery, and returns its event. It throws a WebhookError if the signature, the
 * timestamp or a header is wrong.
 *
 * @param body The raw body, before anything parsed it.
 * @param secret The endpoint's whole secret, `whsec_…`. During a rotation, an array with both.
 */
export async function verifyWebhook(
  body: string | Uint8Array | ArrayBuffer,
  headers: HeadersLike,
  secret: string | readonly string[],
  options: VerifyOptions = {},
): Promise<Delivery> {
  const id = required(headers, "webhook-id");
  const timestamp = required(headers, "webhook-timestamp");
  const signatures = required(headers, "webhook-signature").split(" ");
  const tolerance = options.tolerance ?? 300;
  if (!/^\d{1,15}$/.test(timestamp) || Math.abs(Date.now() / 1000 - Number(timestamp)) > tolerance) {
    throw new WebhookError("stale", `The timestamp differs from the current time by more than ${tolerance} seconds.`);
  }

  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : new Uint8Array(body);
  const prefix = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(prefix.length + bytes.length);
  signed.set(prefix);
  signed.set(bytes, prefix.length);

  const keys = await Promise.all([secret].flat().map(importSecret));
  for (const signature of signatures) {
    const mac = signature.startsWith("v1,") ? fromBase64(signature.slice(3)) : undefined;
    if (mac === undefined) continue;
    for (const key of keys) {
      if (await crypto.subtle.verify("HMAC", key, mac, signed)) return parse(id, headers, bytes);
    }
  }
  throw new WebhookError("invalid_signature", "The signature doesn't match the body, the timestamp and the secret.");
}

function parse(id: string, headers: HeadersLike, bytes: Uint8Array): Delivery {
  // The signature covers webhook-id, so the other header with the same ID must not differ.
  const same = header(headers, "service-event-id");
  if (same !== undefined && same !== id) {
    throw new WebhookError("invalid_signature", "The Service-Event-Id header isn't the signed ID.");
  }
  try {
    const event = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    if (typeof event?.type === "string") return { id, event };
  } catch {
    // Rejected below.
  }
  throw new WebhookError("malformed", "The body isn't an event.");
}

async function importSecret(secret: string): Promise<CryptoKey> {
  const key = secret.startsWith("whsec_") ? fromBase64(secret.slice("whsec_".length)) : undefined;
  if (key === undefined || key.length === 0) {
    throw new TypeError("The secret isn't a webhook secret. Pass the endpoint's whole secret, which starts with whsec_.");
  }
  return crypto.subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function header(headers: HeadersLike, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  for (const [key, value] of Object.entries(headers)) {
    if (key.toLowerCase() === name) return Array.isArray(value) ? value[0] : value;
  }
  return undefined;
}

function required(headers: HeadersLike, name: string): string {
  const value = header(headers, name);
  if (value === undefined || value === "") {
    throw new WebhookError("missing_header", `The ${name} header is missing.`);
  }
  return value;
}
