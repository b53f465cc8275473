// Starts the worker of the engine's package, in a thread that was made of a blob: such a thread has
// the page's content security policy, whatever server the files come from. The first message says
// where the engine's scripts are, and has its program.
"use strict";
self.onmessage = ({ data: { folder, program } }) => {
  self.onmessage = null;
  const load = self.importScripts.bind(self);
  self.importScripts = (...names) => load(...names.map((name) => new URL(name, folder).href));
  // The engine asks for nothing but its program.
  const headers = { "content-type": "application/wasm" };
  self.fetch = async () => new Response(program, { headers });
  Object.defineProperty(self, "location", { value: new URL(folder) });
  self.importScripts("translator-worker.js");
};
