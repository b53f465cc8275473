// Loads the engine and the model, and translates.
const model = JSON.parse(find("model").textContent);
const PAIR = { from: "source", to: "target" };
const LINES_AT_A_TIME = 8;
let engine = null; // a promise of it

function say(text) {
  find("state").textContent = text;
}

const inMegabytes = (bytes) => (bytes / 1e6).toFixed(1);

async function loaded(files) {
  const total = files.reduce((sum, { size }) => sum + size, 0);
  let done = 0;
  const note = (bytes) => {
    done += bytes;
    find("progress").value = done / total;
    say(`Loading engine and model: ${inMegabytes(done)} of ${inMegabytes(total)} MB.`);
  };
  note(0);
  find("progress").hidden = false;
  const others = new AbortController();
  try {
    return await Promise.all(files.map((file) => contentOf(file, note, others.signal)));
  } finally {
    others.abort(); // after an error they are of no use
    find("progress").hidden = true;
  }
}

async function contentOf({ name, size, address }, note, signal) {
  let response;
  try {
    response = await fetch(address, { signal });
  } catch {
    throw new Error(`The server does not answer; the file ${name} is missing.`);
  }
  if (!response.ok) throw new Error(`The server answered ${response.status} for ${name}.`);
  const bytes = new Uint8Array(size);
  let at = 0;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) break;
    if (at + value.length > size) {
      at = Infinity;
      break;
    }
    bytes.set(value, at);
    at += value.length;
    note(value.length);
  }
  if (at !== size || !(await isIntact(bytes, address))) {
    throw new Error(`The file ${name} did not arrive as it was exported. Load the page again; if ` +
      "this remains, copy the folder to the server again.");
  }
  return bytes.buffer;
}

// The address has the file's digest. A page without TLS cannot compute one.
async function isIntact(bytes, address) {
  if (!crypto.subtle) return true;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const text = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return text === address.split("?")[1];
}

async function start() {
  if (location.protocol === "file:") {
    throw new Error("Browsers do not let a page read files from the disk. Serve its folder: " +
      "keras-addnorm serve FOLDER, or python -m http.server --bind 127.0.0.1 --directory FOLDER.");
  }
  if (typeof WebAssembly !== "object") {
    throw new Error("The engine needs WebAssembly, which this browser lacks or has switched off.");
  }
  const { worker, program, weights, shortlist, vocabularies, config } = model;
  const scripts = Object.fromEntries(Object.entries(model.scripts)
    .map(([name, address]) => [name, new URL(address, location.href).href]));
  const files = [worker, program, ...weights, ...shortlist, ...vocabularies];
  const [script, wasm, binary, lexicon, ...vocabs] = await loaded(files);
  say("Starting the engine.");
  const started = await Engine.start(script, scripts, wasm)
    .catch((error) => {
      throw new Error(`The engine does not start in this browser: ${error.message}`);
    });
  await started.call("loadTranslationModel", PAIR, { model: binary, shortlist: lexicon, vocabs, config })
    .catch((error) => {
      started.stop(error.message);
      throw new Error(`The engine does not take the model: ${error.message}`);
    });
  say("Ready.");
  return started;
}

function whenReady() {
  engine ??= start().catch((error) => {
    engine = null;
    say("Not ready.");
    throw error;
  });
  return engine;
}

async function translate(written, isCurrent) {
  const ready = await whenReady();
  if (!isCurrent()) return;
  const lines = (model.form ? written.normalize(model.form) : written).split("\n")
    .map((line) => line.replace(/\s+/g, " ").trim());
  const places = lines.flatMap((line, place) => (line ? [place] : []));
  const translations = lines.map(() => "");
  const begin = performance.now();
  clear();
  say("Translating.");
  for (let at = 0; at < places.length; at += LINES_AT_A_TIME) {
    const some = places.slice(at, at + LINES_AT_A_TIME);
    const texts = some.map((place) => ({ text: lines[place], html: false, qualityScores: false }));
    const answers = await ready.call("translate", { models: [PAIR], texts }).catch((error) => {
      // What was wrong stays in its memory.
      ready.stop(error.message);
      engine = null;
      say("Not ready.");
      throw new Error(`The engine stopped: ${error.message}. The next translation starts it anew.`);
    });
    if (!isCurrent()) return;
    answers.forEach(({ target }, index) => { translations[some[index]] = target.text.trim(); });
    find("translation").textContent = translations.slice(0, some.at(-1) + 1).join("\n");
    if (some.at(-1) !== places.at(-1)) say(`Translating: ${at + some.length} of ${places.length} lines.`);
  }
  const seconds = (performance.now() - begin) / 1000;
  say(places.length ? `Translated in ${seconds.toFixed(seconds < 1 ? 2 : 1)} seconds.` : "Ready.");
}

function clear() {
  find("translation").textContent = "";
}

// Keeps the files, so that the page opens without a network, too.
async function keep() {
  if (!("serviceWorker" in navigator)) {
    return "It needs its server: browsers keep a page for offline use only under https, or of this machine.";
  }
  try {
    const registration = await navigator.serviceWorker.register("service_worker.js");
    const worker = registration.installing ?? registration.waiting ?? registration.active;
    while (worker.state !== "activated") {
      if (worker.state === "redundant") throw new Error("a file did not arrive, or there is no room");
      await new Promise((done) => worker.addEventListener("statechange", done, { once: true }));
    }
    return "From now on this page works without a network.";
  } catch (error) {
    return `It needs its server: this browser did not keep the page (${error.message}).`;
  }
}

whenAsked(translate, clear);
whenReady().then(async () => { find("offline").textContent = await keep(); }, (error) => showError(error.message));
