// Script of every report, with or without interactive charts: sorts tables, shows hidden columns, hints at tables that
// scroll, switches between light and dark, prints, and shows sections as slides. save.js saves figures.
(() => {
  "use strict";

  // Rows without a value stay at the end in both sort orders.
  const sortBy = (table, column, ascending) => {
    const body = table.tBodies[0];
    const valueOf = (row) => row.cells[column].dataset.value;
    const compare = (a, b) => {
      const x = valueOf(a), y = valueOf(b);
      if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
      const order = column === 0 ? x.localeCompare(y) : Number(x) - Number(y);
      return ascending ? order : -order;
    };
    body.append(...Array.from(body.rows).sort(compare));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const ascending = head.getAttribute("aria-sort") !== "ascending";
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        sortBy(table, column, ascending);
      });
    });
  }

  // Hides columns only if this script runs, so that without it all columns are visible.
  const columns = document.getElementById("columns");
  const variants = document.getElementById("variants");
  if (columns && variants.querySelector(".more")) {
    const title = columns.textContent;
    const show = (all) => {
      variants.classList.toggle("few", !all);
      columns.setAttribute("aria-expanded", all);
      columns.textContent = all ? columns.dataset.fewer : title;
    };
    columns.hidden = false;
    show(false);
    columns.addEventListener("click", () => show(variants.classList.contains("few")));
  }

  for (const frame of document.querySelectorAll(".scroll-frame")) {
    const scroll = frame.querySelector(".scroll");
    const hint = () => {
      const hidden = scroll.scrollWidth - scroll.clientWidth;
      frame.classList.toggle("wide", hidden > 1);
      frame.classList.toggle("more-right", hidden - scroll.scrollLeft > 1);
    };
    scroll.addEventListener("scroll", hint, {passive: true});
    const observer = new ResizeObserver(hint);
    observer.observe(scroll);
    observer.observe(scroll.firstElementChild);
  }

  // Browsers may block localStorage in local files. The choice then lasts until the page closes.
  const remembered = () => { try { return localStorage.getItem("lamina-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("lamina-theme", theme); } catch { /* see above */ } };
  const root = document.documentElement;
  const theme = remembered();
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember(root.dataset.theme);
  });

  const print = document.getElementById("print");
  print.hidden = false;
  print.addEventListener("click", () => window.print());

  // Slides: every section fills the window. Arrow and page keys go from one to the next; Escape leaves.
  const slides = document.getElementById("slides");
  const stops = () => Array.from(document.querySelectorAll("main > header, main > section")).filter((part) => part.offsetParent !== null);
  const showSlides = (on) => {
    root.classList.toggle("slides", on);
    slides.setAttribute("aria-pressed", on);
    window.scrollTo(0, 0);
  };
  slides.hidden = false;
  slides.addEventListener("click", () => showSlides(!root.classList.contains("slides")));
  document.addEventListener("keydown", (event) => {
    if (!root.classList.contains("slides") || event.target.closest("select, input, .scroll")) return;
    if (event.key === "Escape") return showSlides(false);
    const forward = ["ArrowRight", "ArrowDown", "PageDown"].includes(event.key);
    if (!forward && !["ArrowLeft", "ArrowUp", "PageUp"].includes(event.key)) return;
    event.preventDefault();
    const all = stops();
    const now = all.findLastIndex((part) => part.getBoundingClientRect().top <= 10);
    const next = all[Math.min(Math.max(now + (forward ? 1 : -1), 0), all.length - 1)];
    next.scrollIntoView({block: "start"});
  });
})();
