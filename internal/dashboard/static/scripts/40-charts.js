// Charts: a tooltip with the values of the slot under the pointer, the finger or the focus.
// The arrow keys move between slots.
const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("aria-hidden", "true"); // the slot has the same text as its label

function showTip(slot) {
  const chart = slot.closest("[data-chart]");
  const colors = new Map([...chart.querySelectorAll(".legend span")].map((key) => [key.textContent.trim(), key.querySelector("i").className]));
  tip.replaceChildren(...slot.getAttribute("aria-label").split("\n").map((text) => {
    const at = text.lastIndexOf(": ");
    const line = document.createElement("p");
    const name = document.createElement("span");
    const value = document.createElement("span");
    name.textContent = text.slice(0, at);
    value.textContent = text.slice(at + 2);
    const color = colors.get(name.textContent);
    if (color) {
      const mark = document.createElement("i");
      mark.className = color;
      name.classList.add("legend");
      name.prepend(mark);
    }
    line.append(name, value);
    return line;
  }));
  chart.append(tip);
  const frame = chart.getBoundingClientRect();
  const place = slot.getBoundingClientRect();
  const right = place.right - frame.left + 8;
  const fits = right + tip.offsetWidth <= frame.width;
  tip.style.left = (fits ? right : Math.max(0, place.left - frame.left - tip.offsetWidth - 8)) + "px";
}

document.addEventListener("pointerover", (event) => {
  const slot = event.target.closest?.(".chart .slot");
  if (slot) showTip(slot); else tip.remove();
});
document.addEventListener("focusin", (event) => { if (event.target.matches?.(".chart .slot")) showTip(event.target); });
document.addEventListener("focusout", (event) => { if (event.target.matches?.(".chart .slot")) tip.remove(); });
// The first touch of a slot shows its values, the second one opens it. The browser moves
// the focus between the touch and the click.
let finger = false, touched = null;
document.addEventListener("pointerdown", (event) => { finger = event.pointerType === "touch"; }, true);
document.addEventListener("click", (event) => {
  const slot = event.target.closest?.(".chart a.slot");
  if (!finger || !slot) { touched = null; return; }
  if (slot === touched && tip.isConnected) return;
  event.preventDefault();
  touched = slot;
  slot.focus();
  showTip(slot);
});
// A click on a part of a stacked bar opens only the requests of that part.
document.addEventListener("click", (event) => {
  const slot = event.target.closest?.(".chart a.slot");
  if (!slot || event.defaultPrevented || !event.detail) return;
  const chart = slot.closest("[data-chart]");
  const part = [...chart.querySelectorAll(".bar")].find((bar) => {
    const r = bar.getBoundingClientRect();
    return event.clientX >= r.left && event.clientX <= r.right && event.clientY >= r.top && event.clientY <= r.bottom;
  });
  const term = part && chart.querySelector(`.legend i.${part.classList[1]}`)?.dataset.term;
  if (!term) return;
  const plain = slot.getAttribute("href"), url = new URL(plain, location.href);
  url.searchParams.set("q", url.searchParams.get("q") + " " + term);
  slot.setAttribute("href", url.pathname + url.search);
  setTimeout(() => slot.setAttribute("href", plain)); // after the browser has followed it
});
document.addEventListener("keydown", (event) => {
  const slot = event.target.closest?.(".chart .slot");
  if (event.key === "Escape") tip.remove();
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!slot || !step) return;
  const slots = [...slot.closest("[data-chart]").querySelectorAll(".slot")];
  const next = slots[slots.indexOf(slot) + step];
  if (!next) return;
  event.preventDefault();
  slot.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
