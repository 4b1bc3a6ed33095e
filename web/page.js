// Script of every report, with or without interactive charts: sorts tables, shows hidden columns, hints at tables that
// scroll, and switches between light and dark.
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
      columns.textContent = all ? "Show fewer" : title;
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
})();
