// Checks the types of Turnpike's SDK: this file must compile, and each expected error must be one.
import { Turnpike, TurnpikeError, verifyWebhook, type Schemas, type WebhookEvent } from "turnpike-sdk";

const turnpike = new Turnpike({ baseUrl: "https://turnpike.example.com", apiKey: () => "tp_test_x" });

export async function use(id: string, headers: Headers, body: ArrayBuffer): Promise<void> {
  const token = await turnpike.post("/v1/scoped_tokens", { body: { scopes: ["chat.completions:create"], expires_in: 900, metadata: { user: "u_42" } } });
  const value: string = token.value;
  for await (const delivery of turnpike.list("/v1/deliveries", { params: { query: { status: "failed" } } })) {
    console.log(delivery.id);
  }
  for await (const step of turnpike.list("/v1/agents/runs/{id}/steps", { params: { path: { id } } })) console.log(step.id);
  const batch: Schemas["ImageBatch"] = await turnpike.waitForImageBatch(id, { onProgress: (job) => console.log(`${job.progress}%`), signal: AbortSignal.timeout(1) });
  await turnpike.post("/v1/voice/transcriptions", { body: new FormData() });
  await turnpike.post("/v1/keys/{id}/rotate", { params: { path: { id } } });
  const run = await turnpike.waitForRun(id);
  const created: Schemas["AgentRun"] = await turnpike.post("/v1/agents/runs", { body: { model: "auto", input: "Hi" } });
  for (const action of run.required_actions) {
    await turnpike.post("/v1/agents/runs/{id}/approvals/{approval}", { params: { path: { id, approval: action.id! } }, body: { decision: "approve", arguments_hash: action.arguments_hash } });
  }
  const { event } = await verifyWebhook(body, headers, "whsec_x");
  if (event.type === "image.batch.completed") console.log(event.data.results.length);
  if (event.type === "billing.credits.low") console.log(event.data.threshold);
  const anyStatus: Schemas["AgentRun"]["status"] = "a value of a later version";
  console.log(value, batch.results.length, created.id, anyStatus, (await turnpike.get("/v1/billing")).used);

  // @ts-expect-error an unknown path
  await turnpike.get("/v1/nothing");
  // @ts-expect-error without its parameter
  await turnpike.get("/v1/keys/{id}");
  // @ts-expect-error without a body
  await turnpike.post("/v1/keys");
  // @ts-expect-error not a list
  turnpike.list("/v1/billing");
  // @ts-expect-error not a decision
  await turnpike.post("/v1/agents/runs/{id}/approvals/{approval}", { params: { path: { id, approval: "x" } }, body: { decision: "maybe" } });
}

export const name = (event: WebhookEvent): string => event.type;
export const code = (error: TurnpikeError): string => error.code;
