"""A package that looks like the engine's, and speaks as it does, but only shouts."""

import json

PACKAGE = {"name": "@browsermt/bergamot-translator", "version": "0.4.9", "license": "MPL-2.0"}
# A program of WebAssembly without content.
PROGRAM = b"\0asm\1\0\0\0"
SHOUT = "self.shout = (text) => text.toUpperCase();\n"
# Some texts are commands: to fail, to wait for another, to ask a server, to say what it was given.
WORKER = """
class Worker_ {
  async initialize() {
    const response = await self.fetch(new URL("./bergamot-translator-worker.wasm", self.location));
    await WebAssembly.instantiateStreaming(response);
    self.importScripts("bergamot-translator-worker.js");
  }
  loadTranslationModel(pair, { model, shortlist, vocabs, config }) {
    const sizes = [model, shortlist, ...vocabs].map((each) => each.byteLength);
    this.given = `${sizes} ${config["gemm-precision"]}`;
  }
  async translate({ models, texts }) {
    return Promise.all(texts.map(async ({ text }) => ({ target: { text: await this.one(text) } })));
  }
  async one(text) {
    if (text === "fail") throw new Error("<b>unreachable</b>");
    if (text === "given") return this.given;
    if (text === "wait") await new Promise((done) => { this.release = done; });
    if (text === "go on") this.release?.();
    if (text.startsWith("http")) {
      const request = new XMLHttpRequest();
      request.open("GET", text, false);
      try { request.send(); } catch { return "refused"; }
      return "asked";
    }
    return `${self.shout(text)} `;
  }
}
const worker = new Worker_();
self.addEventListener("message", async ({ data: { id, name, args } }) => {
  try {
    self.postMessage({ id, result: await worker[name](...args) });
  } catch (error) {
    self.postMessage({ id, error: { message: error.message } });
  }
});
"""


def write_fake_engine(folder, **package):
    """Writes the package's files into a new folder; returns the folder."""
    (folder / "worker").mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps(PACKAGE | package))
    (folder / "worker" / "translator-worker.js").write_text(WORKER)
    (folder / "worker" / "bergamot-translator-worker.js").write_text(SHOUT)
    (folder / "worker" / "bergamot-translator-worker.wasm").write_bytes(PROGRAM)
    return folder
