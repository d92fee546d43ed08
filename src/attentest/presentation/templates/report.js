"use strict";
/* Sorts and filters the table; without it the table is complete, in the order of the images. */
(() => {
  const table = document.getElementById("results");
  if (!table) return;
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const controls = document.getElementById("controls");
  const name = document.getElementById("filter-name");
  const verdict = document.getElementById("filter-verdict");
  const shown = document.getElementById("shown");

  const filter = () => {
    const text = name.value.toLowerCase();
    let count = 0;
    for (const row of rows) {
      const visible = row.dataset.name.toLowerCase().includes(text)
        && (!verdict.value || row.dataset.verdict === verdict.value);
      row.hidden = !visible;
      count += visible;
    }
    shown.value = `${count} of ${rows.length} shown`;
  };

  const key = (row, column) => {
    const cell = row.cells[column];
    const value = cell.dataset.value;
    return value === undefined ? cell.textContent.trim() : value === "" ? NaN : Number(value);
  };

  const compare = (one, other) => {
    if (typeof one === "string") return one.localeCompare(other, undefined, { numeric: true });
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other);
    return one < other ? -1 : one > other ? 1 : 0;
  };

  Array.from(table.tHead.rows[0].cells).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const descending = heading.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const keyed = rows.map((row, place) => ({ row, place, value: key(row, column) }));
      keyed.sort((one, other) => {
        const missing = Number.isNaN(one.value) || Number.isNaN(other.value);
        const order = compare(one.value, other.value) * (descending && !missing ? -1 : 1);
        return order || one.place - other.place;
      });
      body.append(...keyed.map((each) => each.row));
    });
  });

  name.addEventListener("input", filter);
  verdict.addEventListener("change", filter);
  controls.hidden = false;
  filter();
})();
