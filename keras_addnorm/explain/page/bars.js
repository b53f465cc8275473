// One vector as bars. All bars of a figure have one scale, so that sizes can be compared.

const BAR_HEIGHT = 46;

// `before`: what it was before. A sum shows it as bars, and what was added on top of them; another
// step shows it as a thin line. `marked`: a number that is looked at; `choose` is told of another.
function bars(row, { largest, label, key, before = null, kind = "", marked = null, choose = null }) {
  const count = row.length;
  const heightOf = (value) => (BAR_HEIGHT / 2 - 1) * Math.max(-1, Math.min(1, value / largest));
  const middle = BAR_HEIGHT / 2;
  const isSum = kind === "sum";
  const path = (from, to) =>
    Array.from(to, (value, i) => {
      const start = middle - heightOf(from ? from[i] : 0);
      return `M${i + 0.12} ${start.toFixed(2)}h.76V${(middle - heightOf(value)).toFixed(2)}h-.76z`;
    }).join("");
  const line = (vector) =>
    Array.from(vector, (value, i) => `M${i + 0.04} ${(middle - heightOf(value)).toFixed(2)}h.92`).join("");
  const cursor = svg("rect", { class: "cursor", x: 0, y: 0, width: 1, height: BAR_HEIGHT, hidden: true });
  const drawing = svg(
    "svg",
    {
      class: `bars ${kind}`,
      viewBox: `0 0 ${count} ${BAR_HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      tabindex: 0,
      "data-focus": `bars-${key}`,
      "aria-label": say("{label}: {row} Arrow keys go through them.", { label, row: describeRow(row) }),
    },
    cursor,
    marked === null ? null : svg("rect", { class: "mark", x: marked, y: 0, width: 1, height: BAR_HEIGHT }),
    svg("path", { class: "zero", d: `M0 ${middle}H${count}` }),
    isSum
      ? [
          svg("path", { class: "bar", d: path(null, before) }),
          svg("path", { class: "added", d: path(before, row) }),
          svg("path", { class: "level", d: line(row) }),
        ]
      : [
          svg("path", { class: "bar", d: path(null, row) }),
          before && svg("path", { class: "before", d: line(before) }),
        ],
  );
  const readout = element("output", { class: "readout", "aria-live": "polite" });
  let at = -1;
  const show = (index) => {
    at = index;
    cursor.toggleAttribute("hidden", index < 0);
    cursor.setAttribute("x", Math.max(0, index));
    readout.textContent = index < 0 ? "" : `${index + 1}: ${short(row[index])}`;
  };
  const indexAt = (event) => {
    const box = drawing.getBoundingClientRect();
    return Math.max(0, Math.min(count - 1, Math.floor(((event.clientX - box.left) / box.width) * count)));
  };
  drawing.addEventListener("mousemove", (event) => show(indexAt(event)));
  if (choose) drawing.addEventListener("click", (event) => choose(indexAt(event)));
  drawing.addEventListener("mouseleave", () => show(-1));
  drawing.addEventListener("blur", () => show(-1));
  drawing.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    show(Math.max(0, Math.min(count - 1, to)));
  });
  return element("div", { class: "bars-box" }, drawing, readout);
}

function describeRow(row) {
  return say("{count} numbers from {low} to {high}, root mean square {size}.", {
    count: row.length,
    low: short(Math.min(...row)),
    high: short(Math.max(...row)),
    size: short(rootMeanSquare([row])),
  });
}

function largestOf(rows) {
  let largest = 1e-9;
  for (const row of rows) for (const value of row) largest = Math.max(largest, Math.abs(value));
  return largest;
}
