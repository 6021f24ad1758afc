// A click on an image shows it large, with those around it. Without this script, the
// link opens the file.
(() => {
  const dialog = document.getElementById("lightbox");
  if (!dialog) return;
  const [place, name, counter, link, about] = [".lightbox-image", "strong", ".quiet", "a", ".lightbox-about"].map((part) => dialog.querySelector(part));
  const image = new Image();
  place.append(image);
  const all = () => [...document.querySelectorAll("a[data-lightbox]")];
  let current = "";
  const show = (shot) => {
    const list = all();
    current = shot.getAttribute("href");
    image.src = link.href = current;
    image.alt = shot.querySelector("img").alt;
    name.textContent = shot.dataset.lightbox;
    counter.textContent = list.length > 1 ? `${list.indexOf(shot) + 1} of ${list.length}` : "";
    about.textContent = shot.closest("[data-about]").dataset.about;
    dialog.classList.toggle("several", list.length > 1);
  };
  const shown = () => all().find((shot) => shot.getAttribute("href") === current);
  const go = (step) => {
    const list = all();
    if (list.length) show(list[(list.indexOf(shown()) + step + list.length) % list.length]);
  };
  document.addEventListener("click", (event) => {
    const shot = event.target.closest("a[data-lightbox]");
    if (!shot || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    show(shot);
    dialog.showModal();
  });
  dialog.addEventListener("click", (event) => {
    const step = event.target.closest("[data-go]")?.dataset.go;
    if (step === "close") dialog.close();
    else if (step) go(Number(step));
  });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); go(step); }
  });
  dialog.addEventListener("close", () => { image.removeAttribute("src"); shown()?.focus(); });
})();
