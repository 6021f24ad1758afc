export { Turnpike, type Call, type ListItem, type ListPath, type Schemas, type TurnpikeOptions, type WaitOptions } from "./client.js";
export { TurnpikeError } from "./errors.js";
export { serverSentEvents, type ServerSentEvent } from "./sse.js";
export { cachedToken, type TokenResponse } from "./tokens.js";
export {
  verifyWebhook,
  WebhookError,
  type Delivery,
  type EventName,
  type HeadersLike,
  type VerifyOptions,
  type WebhookErrorCode,
  type WebhookEvent,
} from "./webhooks.js";
export type { components, operations, paths, webhooks } from "./schema.js";
