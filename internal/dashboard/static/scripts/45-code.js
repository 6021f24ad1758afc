// The language of code examples, remembered for all of them.
const languageKey = "turnpike-language";
const remembered = () => { try { return localStorage.getItem(languageKey); } catch { return null; } };
function chooseLanguage(root, language) {
  if (language) each(root, "[data-code-tabs] input", (input) => { if (input.value === language) input.checked = true; });
}
chooseLanguage(document, remembered());
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-code-tabs] input")) return;
  try { localStorage.setItem(languageKey, event.target.value); } catch { /* it is only a convenience */ }
  chooseLanguage(document, event.target.value);
});
