import type { components } from "./schema.js";

type ErrorBody = components["schemas"]["Error"]["error"];

/** An error response of the server. */
export class TurnpikeError extends Error {
  override readonly name = "TurnpikeError";
  /** The HTTP status. */
  readonly status: number;
  /** The stable code for programs, such as `budget_exceeded`. If the response isn't Turnpike's, it is `unknown`. */
  readonly code: ErrorBody["code"] | "unknown";
  /** The category of the code. */
  readonly type: ErrorBody["type"] | "unknown";
  /** The field, header or query parameter that the error is about. */
  readonly param: string | null;
  /** The request's ID. Quote it when you ask for help. */
  readonly requestId: string | null;
  /** Where the code is explained. */
  readonly docUrl: string | null;
  /** The headers of the response. */
  readonly headers: Headers;

  constructor(response: Response, body: Partial<ErrorBody>) {
    const requestId = body.request_id ?? response.headers.get("x-request-id");
    const message = body.message ?? `The server responded with status ${response.status}, which isn't an error of Turnpike. Check the base URL.`;
    super(requestId === null ? message : `${message} (${requestId})`);
    this.status = response.status;
    this.code = body.code ?? "unknown";
    this.type = body.type ?? "unknown";
    this.param = body.param ?? null;
    this.requestId = requestId;
    this.docUrl = body.doc_url ?? null;
    this.headers = response.headers;
  }

  /** Reads the body of an error response. */
  static async from(response: Response): Promise<TurnpikeError> {
    let body: { error?: unknown } | null = null;
    try {
      body = JSON.parse(await response.text());
    } catch {
      // A proxy's page, or a connection that was cut: the status has to do.
    }
    const error = body?.error;
    return new TurnpikeError(response, typeof error === "object" && error !== null ? error : {});
  }
}
