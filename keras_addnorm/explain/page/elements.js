// Makes elements. Text is always text: nothing that somebody typed is read as HTML.

function make(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    const isAbsent = value === null || value === undefined || (value === false && !name.startsWith("aria-"));
    if (isAbsent) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

function element(tag, attributes, ...children) {
  return make(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

// Replaces what is in a place. What had the focus has it again, found by its `data-focus`.
function fill(place, ...children) {
  const active = document.activeElement;
  const key = place.contains(active) ? active.dataset.focus : null;
  const scrolled = [...place.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  place.querySelectorAll(".scroll").forEach((each, i) => (each.scrollLeft = scrolled[i] ?? 0));
  if (!key) return;
  const again = [...place.querySelectorAll("[data-focus]")].find((each) => each.dataset.focus === key);
  again?.focus({ preventScroll: true });
}

// A number with few digits and a real minus sign.
function short(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-3 || size >= 1e5)
      ? powerOfTen(value.toExponential(1))
      : String(Number(value.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

// 5.5e-9 as 5.5·10⁻⁹.
function powerOfTen(text) {
  const [digits, power] = text.replace(".0e", "e").replace("+", "").split("e");
  const raised = [...power].map((each) => (each === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[each])).join("");
  return digits === "1" ? `10${raised}` : `${digits}·10${raised}`;
}

function fixed(value, digits = 2) {
  return value.toFixed(digits).replaceAll("-", "−");
}

function percent(share) {
  return share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(1)} %`;
}
