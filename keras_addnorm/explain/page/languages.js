// The words of the page in another language: English stands where it is used, and is the key.
//
// A file `language_*.js` adds a language: { name, tag, joint, words }, where `joint` stands between
// sentences, and `words` has a translation of every text. `{name}` in a text is a value.

const LANGUAGES = { en: { name: "English", tag: "en", joint: " ", words: {} } };
const STORED = "language";
let language = "en";

// Marks a text that is said later.
const toSay = (text) => text;

function say(text, values = {}) {
  return saying(text, values).join("");
}

// The same in parts, so that a value may be an element.
function saying(text, values = {}) {
  const parts = (LANGUAGES[language].words[text] ?? text).split(/\{(\w+)\}/);
  return parts.map((part, i) => (i % 2 ? values[part] : part)).filter((part) => part !== "");
}

// Sentences in a row; those that are empty are left out.
function sentences(...said) {
  return said.filter(Boolean).join(LANGUAGES[language].joint);
}

function wholeNumber(value) {
  return value.toLocaleString(LANGUAGES[language].tag);
}

// That of the address, else that of the last visit, else that of the browser.
function preferredLanguage() {
  const asked = [new URLSearchParams(location.search).get("lang"), storedLanguage(), ...navigator.languages];
  const known = asked.map((each) => each?.toLowerCase().split("-")[0]);
  return known.find((each) => each && Object.hasOwn(LANGUAGES, each)) ?? "en";
}

function storedLanguage() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // A browser may keep nothing of a file.
  }
}

function keepLanguage() {
  try {
    localStorage.setItem(STORED, language);
  } catch {
    // The address keeps it.
  }
  const address = new URL(location.href);
  address.searchParams.set("lang", language);
  history.replaceState(null, "", address);
}

const stillTexts = new Map();

// Says what stands in the page itself: `data-say` is the text, `data-say-label` the label.
function sayStillTexts() {
  document.documentElement.lang = LANGUAGES[language].tag;
  for (const each of document.querySelectorAll("[data-say], [data-say-label]")) {
    if (!stillTexts.has(each)) stillTexts.set(each, [each.textContent, each.getAttribute("aria-label")]);
    const [text, label] = stillTexts.get(each);
    if ("say" in each.dataset) each.textContent = say(text);
    if ("sayLabel" in each.dataset) each.setAttribute("aria-label", say(label));
  }
  for (const each of document.querySelectorAll(".joint")) each.textContent = LANGUAGES[language].joint;
  document.title = document.querySelector("h1").textContent;
}

function drawLanguages(place, choose) {
  fill(
    place,
    Object.entries(LANGUAGES).map(([key, { name, tag }]) =>
      element(
        "button",
        {
          type: "button",
          class: "key",
          lang: tag,
          "aria-pressed": key === language,
          "data-focus": `language-${key}`,
          onclick: () => choose(key),
        },
        name,
      ),
    ),
  );
}
