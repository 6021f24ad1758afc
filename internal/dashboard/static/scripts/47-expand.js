// A button opens or closes all details of a part of the page.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-expand]");
  if (!button) return;
  const open = button.getAttribute("aria-pressed") !== "true";
  each(document.querySelector(button.dataset.expand), "details", (part) => { part.open = open; });
  button.setAttribute("aria-pressed", open);
});
