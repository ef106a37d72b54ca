"use strict";
// Tables are sorted by buttons in their heads; without this script they stand in their first order.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const body = table.tBodies[0];
      const key = (row) => row.cells[column].dataset.order ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const figures = x !== "" && y !== "" && !isNaN(x) && !isNaN(y);
        return figures ? x - y : x.localeCompare(y, undefined, { numeric: true });
      };
      body.append(...[...body.rows].sort((a, b) => (up ? compare(a, b) : compare(b, a))));
    });
  });
}
// A link to something inside a folded part opens it.
const unfold = () => {
  const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  place?.closest("details")?.setAttribute("open", "");
};
addEventListener("hashchange", unfold);
unfold();
