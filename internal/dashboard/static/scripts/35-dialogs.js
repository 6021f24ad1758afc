// A question before an action is a dialog, which is a popover without this script.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[popovertarget]");
  const dialog = button ? document.getElementById(button.getAttribute("popovertarget")) : event.target;
  if (!dialog?.matches("dialog.ask")) return;
  event.preventDefault();
  if (button?.getAttribute("popovertargetaction") !== "hide" && button) ask(dialog);
  else dialog.close();
});

function ask(dialog) {
  dialog.close();
  dialog.removeAttribute("popover");
  dialog.showModal();
  (dialog.querySelector("input:not([type=hidden])") ?? dialog.querySelector("[popovertargetaction=hide]"))?.focus();
}
each(document, "dialog.ask[open]", ask);

// The name of what is deleted has to be typed exactly.
document.addEventListener("input", (event) => {
  const name = event.target.dataset?.name;
  if (!name || event.target.name !== "confirm_name") return;
  const words = (s) => s.trim().split(/\s+/).join(" ");
  event.target.setCustomValidity(event.target.value && words(event.target.value) !== words(name) ? `Type ${name} exactly.` : "");
});

// What is typed into a password field can be shown until the form is sent.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-reveal]");
  if (!button) return;
  const input = button.parentElement.querySelector("input");
  const shown = input.type === "password";
  input.type = shown ? "text" : "password";
  button.setAttribute("aria-pressed", String(shown));
});
document.addEventListener("submit", (event) => each(event.target, "[data-reveal][aria-pressed=true]", (button) => button.click()));

// A list of models completes its last name.
const knownModels = new WeakMap();
document.addEventListener("input", (event) => {
  const list = event.target.matches("input[list=known-models]") ? event.target.list : null;
  if (!list) return;
  if (!knownModels.has(list)) knownModels.set(list, [...list.options].map((option) => option.value));
  const before = event.target.value.match(/^.*[,\s]/)?.[0] ?? "";
  if (list.dataset.before === before) return;
  list.dataset.before = before;
  knownModels.get(list).forEach((name, i) => { list.options[i].value = before + name; });
});
