import { TurnpikeError } from "./errors.js";

const maxBackoff = 8_000;

/** Resolves after some milliseconds, and rejects if the signal is aborted. */
export function sleep(ms: number, signal?: AbortSignal | null): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", abort);
      resolve();
    }, ms);
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** The delay in milliseconds that a response asks for. */
export function requestedDelay(headers: Headers): number | undefined {
  for (const [name, unit] of [["retry-after-ms", 1], ["retry-after", 1000]] as const) {
    const value = Number(headers.get(name) ?? NaN);
    if (value >= 0) return value * unit;
  }
  return undefined;
}

/** The delay before a retry, between half a second and 8 seconds. The random part spreads the retries of many clients. */
export function backoff(attempt: number): number {
  return Math.min(maxBackoff, 500 * 2 ** attempt) * (0.75 + Math.random() / 4);
}

function isRetryable(response: Response): boolean {
  const hint = response.headers.get("x-should-retry");
  if (hint !== null) return hint === "true";
  return response.status === 408 || response.status === 409 || response.status === 429 || response.status >= 500;
}

/**
 * Wraps fetch: it retries connection errors and the responses that a retry can help, and throws a TurnpikeError for
 * every other response that isn't a success. A POST gets an `Idempotency-Key`, so a retry never runs it twice.
 */
export function resilientFetch(fetch: typeof globalThis.fetch, maxRetries: number): (request: Request) => Promise<Response> {
  return async (request) => {
    if (request.method === "POST" && !request.headers.has("idempotency-key")) {
      request.headers.set("idempotency-key", crypto.randomUUID());
    }
    for (let attempt = 0; ; attempt++) {
      const last = attempt >= maxRetries;
      let response: Response;
      try {
        response = await fetch(last ? request : request.clone());
      } catch (error) {
        if (last || request.signal.aborted) throw error;
        await sleep(backoff(attempt), request.signal);
        continue;
      }
      if (response.ok) return response;
      const error = await TurnpikeError.from(response);
      if (last || !isRetryable(response)) throw error;
      await sleep(requestedDelay(response.headers) ?? backoff(attempt), request.signal);
    }
  };
}
