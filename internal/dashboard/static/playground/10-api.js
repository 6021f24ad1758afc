// Tokens and requests.

let token = null; // only in memory
let minting = null;

async function fetchJSON(path, options) {
  const response = await fetch(path, { headers: { Accept: "application/json" }, ...options });
  const isJSON = response.headers.get("Content-Type")?.startsWith("application/json");
  if (response.redirected || !isJSON && response.ok) throw new Problem("Your session has ended.", { link: ["Sign in again", location.href] });
  if (!isJSON) throw new Problem(response.status === 403 ? "Your role no longer allows this." : `The server responded with ${response.status}. Reload the page.`);
  const body = await response.json();
  if (!response.ok) throw new Problem(body.error.message, { code: body.error.code, status: response.status });
  return body;
}

// currentToken returns a token that works for at least another half minute.
async function currentToken() {
  if (token && performance.now() < token.renewAt) return token.value;
  minting ??= fetchJSON(config.path + "/token", { method: "POST" }).finally(() => { minting = null; });
  const minted = await minting;
  token = { value: minted.value, renewAt: performance.now() + (minted.expires_in - 30) * 1000 };
  return token.value;
}

// send posts a request to the API. A token that was revoked meanwhile is replaced once.
async function send(path, body, signal) {
  const text = JSON.stringify(body);
  for (let attempt = 0; ; attempt++) {
    const value = await currentToken();
    const response = await fetch(path, { method: "POST", body: text, signal, headers: { "Content-Type": "application/json", Authorization: "Bearer " + value } });
    if (response.status !== 401 || attempt > 0 || text.includes("[[sim:")) return response;
    token = null;
  }
}

const advice = {
  no_provider: () => config.environment === "live" ? ["No provider serves this model. Choose another one, or set up a provider.", ["Providers", config.providers]] : ["Choose another model."],
  model_not_found: () => ["Choose a model from the list."],
  model_not_allowed: () => ["Choose a model that this workspace allows."],
  rate_limit_exceeded: (p) => [p.retryAfter ? `Run again in ${p.retryAfter} s.` : "Wait a moment and run again."],
  insufficient_credits: () => ["The workspace has too few credits.", ["Billing", config.billing]],
  budget_exceeded: () => ["A budget is used up.", ["Billing", config.billing]],
  context_length_exceeded: () => ["Shorten the messages, or choose a model with a larger context."],
  request_too_large: () => ["Remove images or shorten the messages."],
  authentication_error: () => ["Reload the page to get a new token."],
  insufficient_scope: () => ["Ask an owner or admin to change your role."],
  invalid_parameter: (p) => [p.param ? `Change ${p.param} and run again.` : "Change the request and run again."],
  missing_parameter: (p) => [p.param ? `Fill in ${p.param} and run again.` : "Complete the request and run again."],
};
const defaultAdvice = (p) => p.status >= 500 || !p.status ? ["Run again, or choose another model."] : ["Change the request and run again."];

// problemOf describes an error of the API.
function problemOf(error, status, headers) {
  const found = { code: error?.code ?? error?.type, param: error?.param, status, retryAfter: headers?.get("Retry-After") };
  const [hint, link] = (advice[found.code] ?? defaultAdvice)(found);
  return new Problem(error?.message ?? `The server responded with ${status}.`, { ...found, hint, link });
}

async function failure(response) {
  let body = null;
  try {
    body = await response.clone().json();
  } catch { /* a proxy's page, not ours */ }
  return problemOf(body?.error, response.status, response.headers);
}

// events yields the data of a stream's events. seen gets the text as it arrives.
async function* events(response, seen) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    seen(value);
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6).trimEnd();
  }
}

// factsOf returns tokens and cost as the request log has them, which takes a moment after the response.
async function factsOf(requestID) {
  let facts = null;
  for (const wait of [0, 100, 300, 800, 2000]) {
    await new Promise((done) => { setTimeout(done, wait); });
    try {
      facts = await fetchJSON(config.path + "/requests/" + requestID);
    } catch {
      continue;
    }
    if (facts.settled) break;
  }
  return facts;
}
