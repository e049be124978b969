"use strict";
// Each header becomes a button: ascending, descending, then the order the page came in.
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?/i;

function keyOf(cell) {
  const text = cell.textContent.trim().replace(/,(?=\d{3})/g, "").replace("−", "-");
  if (text === "" || text === "-") return null;
  if (text.startsWith("∞")) return Infinity;
  const number = NUMBER.exec(text);
  return number ? Number(number[0]) : text;
}

function compare(a, b) {
  return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
}

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const next = { ascending: "descending", descending: null }[head.getAttribute("aria-sort")];
      const order = next === undefined ? "ascending" : next;
      for (const other of heads) other.removeAttribute("aria-sort");
      let rows = original;
      if (order) {
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const keys = new Map(original.map((row) => [row, keyOf(row.cells[column])]));
        const numbers = [...keys.values()].filter((key) => typeof key === "number").length;
        const words = [...keys.values()].filter((key) => typeof key === "string").length;
        // One number among words is a word; a word among numbers stands last, as an empty cell does.
        const asWords = words >= numbers;
        const last = (key) => key === null || (!asWords && typeof key === "string");
        rows = [...original].sort((one, two) => {
          const [a, b] = [keys.get(one), keys.get(two)];
          if (last(a) || last(b)) return last(a) - last(b);
          if (!asWords) return sign * compare(a, b);
          return sign * compare(one.cells[column].textContent, two.cells[column].textContent);
        });
      }
      body.append(...rows);
    });
  });
}
