// Starts the worker of the engine's package, in a thread that was made of a blob: such a thread has
// the page's content security policy, whatever server the files come from. The first message has
// the addresses of the engine's scripts, and its program.
"use strict";
self.onmessage = ({ data: { folder, scripts, program } }) => {
  self.onmessage = null;
  const load = self.importScripts.bind(self);
  self.importScripts = (...names) => load(...names.map((name) => scripts[name]));
  // The engine asks for nothing but its program.
  const headers = { "content-type": "application/wasm" };
  self.fetch = async () => new Response(program, { headers });
  Object.defineProperty(self, "location", { value: new URL(folder) });
  self.importScripts("translator-worker.js");
};
