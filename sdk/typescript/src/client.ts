import createClient, { type Client } from "openapi-fetch";
import { TurnpikeError } from "./errors.js";
import { backoff, requestedDelay, resilientFetch, sleep } from "./retry.js";
import type { components, paths } from "./schema.js";
import { serverSentEvents } from "./sse.js";

/** The schemas of the API, such as `Schemas["AgentRun"]`. */
export type Schemas = components["schemas"];

type JSONType = "application/json";
type Method = "get" | "post" | "patch" | "delete";
type PathsWith<M extends Method> = { [Path in keyof paths]: paths[Path] extends Record<M, { responses: unknown }> ? Path : never }[keyof paths];
type Operation<Path extends keyof paths, M extends Method> = M extends keyof paths[Path] ? paths[Path][M] : never;

type Result<Op> = Op extends { responses: { 200: { content: { [type in JSONType]: infer Body } } } } ? Body : never;
type Form<Content> = "multipart/form-data" extends keyof Content ? FormData : never;
type Params<Op> = Op extends { parameters: infer P } ? ({} extends P ? { params?: P } : { params: P }) : {};
type RequestBody<Op> = Op extends { requestBody: { content: infer Content } }
  ? { body: Content[keyof Content] | Form<Content> }
  : Op extends { requestBody?: infer Request }
    ? [Exclude<Request, undefined>] extends [{ content: infer Content }] ? { body?: Content[keyof Content] | Form<Content> } : {}
    : {};
/** The parameters and the body of an operation, and options of fetch. */
type Init<Op> = Params<Op> & RequestBody<Op> & { signal?: AbortSignal; headers?: Record<string, string> };
type InitArguments<Op> = {} extends Init<Op> ? [init?: Init<Op>] : [init: Init<Op>];

/** A method of the client: it returns the body of the response, and throws a TurnpikeError otherwise. */
export type Call<M extends Method> = <Path extends PathsWith<M>>(
  path: Path,
  ...init: InitArguments<Operation<Path, M>>
) => Promise<Result<Operation<Path, M>>>;

type Page = { data: unknown[]; last_id: string | null; has_more: boolean };
/** The path of a list that continues after the `last_id` of a page. */
export type ListPath = {
  [Path in PathsWith<"get">]: Operation<Path, "get"> extends { parameters: { query?: { after?: string } } }
    ? Result<Operation<Path, "get">> extends Page ? Path : never
    : never;
}[PathsWith<"get">];
/** An entry of a list. */
export type ListItem<Path extends ListPath> = Result<Operation<Path, "get">> extends { data: (infer Item)[] } ? Item : never;

export interface TurnpikeOptions {
  /** The server's URL, such as `https://turnpike.example.com`. */
  baseUrl: string;
  /** A key or a scoped token, or a function that returns one for each request. */
  apiKey: string | (() => string | Promise<string>);
  /** How often to retry a request that failed temporarily. The default is 2. */
  maxRetries?: number;
  /** The project of all requests. */
  project?: string;
  /** Replaces the global fetch. */
  fetch?: typeof globalThis.fetch;
}

export interface WaitOptions<Job> {
  /** Gets the job or run each time that its state or progress has changed. */
  onProgress?: (job: Job) => void;
  /** Ends the waiting. The job goes on. */
  signal?: AbortSignal;
  /** The milliseconds between polls. By default they grow from half a second to 5 seconds. */
  pollInterval?: number;
}

/** A client of the parts of Turnpike's API that OpenAI's SDKs don't cover. */
export class Turnpike {
  readonly get: Call<"get">;
  readonly post: Call<"post">;
  readonly patch: Call<"patch">;
  readonly delete: Call<"delete">;

  readonly #client: Client<paths, JSONType>;
  readonly #fetch: (request: Request) => Promise<Response>;
  readonly #headers: () => Promise<Headers>;
  readonly #baseUrl: string;
  readonly #maxRetries: number;

  constructor(options: TurnpikeOptions) {
    // Base URLs of OpenAI's SDKs end in /v1, which the paths have here.
    this.#baseUrl = options.baseUrl.replace(/\/+$/, "").replace(/\/v1$/, "");
    this.#maxRetries = options.maxRetries ?? 2;
    this.#fetch = resilientFetch(options.fetch ?? ((request, init) => globalThis.fetch(request, init)), this.#maxRetries);
    this.#headers = async () => {
      const key = typeof options.apiKey === "function" ? await options.apiKey() : options.apiKey;
      const headers = new Headers({ authorization: `Bearer ${key}` });
      if (options.project !== undefined) headers.set("service-project", options.project);
      return headers;
    };
    this.#client = createClient<paths, JSONType>({ baseUrl: this.#baseUrl, fetch: this.#fetch });
    this.#client.use({
      onRequest: async ({ request }) => {
        for (const [name, value] of await this.#headers()) {
          if (!request.headers.has(name)) request.headers.set(name, value);
        }
      },
    });
    const call = (method: Method) => async (path: string, init?: object) => (await this.#request(method, path, init)).data;
    this.get = call("get") as Call<"get">;
    this.post = call("post") as Call<"post">;
    this.patch = call("patch") as Call<"patch">;
    this.delete = call("delete") as Call<"delete">;
  }

  /** Iterates over all entries of a list, and gets the next page when it is needed. */
  async *list<Path extends ListPath>(path: Path, ...init: InitArguments<Operation<Path, "get">>): AsyncGenerator<ListItem<Path>, void, undefined> {
    const first = (init[0] ?? {}) as { params?: { query?: object } };
    let after: string | null | undefined;
    do {
      const query = { ...first.params?.query, ...(after == null ? {} : { after }) };
      const page = (await this.#request("get", path, { ...first, params: { ...first.params, query } })).data as Page;
      yield* page.data as ListItem<Path>[];
      after = page.has_more ? page.last_id : null;
    } while (after != null);
  }

  /** Waits until an image batch has ended. It returns failed and canceled batches too: check the `status`. */
  waitForImageBatch(id: string, options?: WaitOptions<Schemas["ImageBatch"]>): Promise<Schemas["ImageBatch"]> {
    return this.#wait("/v1/images/batches/{id}", id, hasEnded, options);
  }

  /** Waits until a video has ended. It returns failed and canceled videos too: check the `status`. */
  waitForVideo(id: string, options?: WaitOptions<Schemas["Video"]>): Promise<Schemas["Video"]> {
    return this.#wait("/v1/videos/{id}", id, hasEnded, options);
  }

  /** Waits until a voice render has ended. It returns failed and canceled renders too: check the `status`. */
  waitForVoiceRender(id: string, options?: WaitOptions<Schemas["VoiceRender"]>): Promise<Schemas["VoiceRender"]> {
    return this.#wait("/v1/voice/renders/{id}", id, hasEnded, options);
  }

  /** Waits until a transcription has ended. It returns failed and canceled jobs too: check the `status`. */
  waitForTranscription(id: string, options?: WaitOptions<Schemas["VoiceTranscription"]>): Promise<Schemas["VoiceTranscription"]> {
    return this.#wait("/v1/voice/transcriptions/{id}", id, hasEnded, options);
  }

  /**
   * Waits until an agent run has ended or needs you: if `required_actions` isn't empty, decide its approvals or send
   * the outputs of your tools, and wait again.
   */
  waitForRun(id: string, options?: WaitOptions<Schemas["AgentRun"]>): Promise<Schemas["AgentRun"]> {
    return this.#wait("/v1/agents/runs/{id}", id, (run) => hasEnded(run) || run.required_actions.length > 0, options);
  }

  /**
   * Yields the events of a run as they happen, until the run has ended. If the connection breaks, it resumes after the
   * last event.
   */
  async *runEvents(id: string, options: { startingAfter?: number; signal?: AbortSignal } = {}): AsyncGenerator<Schemas["AgentRunEvent"], void, undefined> {
    let last = options.startingAfter ?? 0;
    for (let failures = 0; ; failures++) {
      const url = `${this.#baseUrl}/v1/agents/runs/${encodeURIComponent(id)}/events?stream=true&starting_after=${last}`;
      const response = await this.#fetch(new Request(url, { headers: await this.#headers(), signal: options.signal ?? null }));
      try {
        for await (const { event, data } of serverSentEvents(response)) {
          if (data === "[DONE]") return;
          const value = JSON.parse(data);
          if (event === "error") throw new TurnpikeError(response, value.error ?? {});
          failures = 0;
          last = value.seq;
          yield value;
        }
      } catch (error) {
        if (options.signal?.aborted || error instanceof TurnpikeError || failures >= this.#maxRetries) throw error;
      }
      if (failures >= this.#maxRetries) throw new Error(`The event stream of ${id} ended before the run. Last event: ${last}.`);
      await sleep(backoff(failures), options.signal);
    }
  }

  async #wait<Job extends { status: string }>(path: string, id: string, isDone: (job: Job) => boolean, options: WaitOptions<Job> = {}): Promise<Job> {
    let shown = "";
    for (let interval = 500; ; interval = Math.min(5_000, interval * 1.5)) {
      const { data, response } = await this.#request("get", path, { params: { path: { id } }, signal: options.signal });
      const job = data as Job;
      const state = progressOf(job);
      if (state !== shown) {
        shown = state;
        options.onProgress?.(job);
      }
      if (isDone(job)) return job;
      await sleep(options.pollInterval ?? requestedDelay(response.headers) ?? interval, options.signal);
    }
  }

  // The types of paths are checked by the public methods.
  #request(method: Method, path: string, init?: object): Promise<{ data: unknown; response: Response }> {
    const request = this.#client.request as unknown as (method: Method, path: string, init?: object) => Promise<{ data: unknown; response: Response }>;
    return request(method, path, init);
  }
}

const hasEnded = (job: { completed_at: number | null }): boolean => job.completed_at !== null;

/** The fields of a job or run that change while it is in progress. */
function progressOf(job: object): string {
  const { status, progress, request_counts, segments, steps_used } = job as Record<string, unknown>;
  return JSON.stringify([status, progress, request_counts, segments, steps_used]);
}
