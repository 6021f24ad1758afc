// Copy buttons and search. Without JavaScript, pages and tabs still work.
"use strict";

for (const pre of document.querySelectorAll("pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(pre.querySelector("code")?.textContent ?? pre.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  pre.append(button);
}

const form = document.querySelector(".search");
const input = document.querySelector("#search");
const results = document.querySelector("#results");
let index;

// score counts how well an entry matches all words. 0 means that a word is missing.
function score(entry, words) {
  let total = 0;
  for (const word of words) {
    const inTitle = entry.title.toLowerCase().includes(word);
    if (!inTitle && !entry.text.toLowerCase().includes(word)) return 0;
    total += inTitle ? 10 : 1;
  }
  return total;
}

function show(words) {
  const found = index.map((entry) => [score(entry, words), entry]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]).slice(0, 12);
  results.replaceChildren(...found.map(([, entry]) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = entry.path;
    link.textContent = entry.title;
    const text = document.createElement("span");
    const at = Math.max(0, entry.text.toLowerCase().indexOf(words[0]) - 40);
    text.textContent = (at > 0 ? "…" : "") + entry.text.slice(at, at + 140);
    item.append(link, text);
    return item;
  }));
  if (found.length === 0) {
    const item = document.createElement("li");
    item.textContent = "No results.";
    results.append(item);
  }
  results.hidden = false;
}

form.hidden = false;
form.addEventListener("submit", (event) => {
  event.preventDefault();
  results.querySelector("a")?.click();
});
input.addEventListener("input", async () => {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    results.hidden = true;
    return;
  }
  index ??= await (await fetch("/docs/search.json")).json();
  show(words);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") results.hidden = true;
  if (event.key === "/" && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    input.focus();
  }
});
