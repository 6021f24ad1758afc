// Passkeys.
const toBytes = (s) => Uint8Array.from(atob(s.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
const toText = (b) => btoa(String.fromCharCode(...new Uint8Array(b))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

const passkeyProblems = {
  NotAllowedError: "Canceled or timed out.",
  InvalidStateError: "This device already has a passkey for your account.",
  SecurityError: "The browser rejects passkeys here. They need HTTPS and a host name.",
  TypeError: "This browser doesn't support passkeys, or the server is unreachable.",
};

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.passkey || form.dataset.answered) return;
  event.preventDefault();
  if (form.dataset.asking) return;
  form.dataset.asking = "yes";
  try {
    const begun = await fetch(form.dataset.passkey, { method: "POST" });
    if (begun.redirected) { location = begun.url; return; } // to the sign-in, or to confirm
    if (!begun.ok) throw new Error(begun.status === 429 ? "Too many attempts. Try again in a minute." : "The server could not start. Reload the page.");
    const { options, token } = await begun.json();
    const key = options.publicKey;
    key.challenge = toBytes(key.challenge);
    if (key.user) key.user.id = toBytes(key.user.id);
    for (const list of [key.excludeCredentials, key.allowCredentials]) for (const c of list ?? []) c.id = toBytes(c.id);
    const made = await (key.user ? navigator.credentials.create({ publicKey: key }) : navigator.credentials.get({ publicKey: key }));
    const answer = { id: made.id, rawId: toText(made.rawId), type: made.type, clientExtensionResults: made.getClientExtensionResults(), response: {} };
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (made.response[name]) answer.response[name] = toText(made.response[name]);
    }
    form.elements.token.value = token;
    form.elements.response.value = JSON.stringify(answer);
    form.dataset.answered = "yes";
    form.submit();
  } catch (problem) {
    let line = form.querySelector(".problem");
    if (!line) {
      line = document.createElement("p");
      line.className = "problem";
      line.setAttribute("role", "alert");
      form.append(line);
    }
    line.textContent = passkeyProblems[problem.name] ?? problem.message;
  } finally {
    delete form.dataset.asking;
  }
});
