// Keeps the files of the page, so that it opens without a network. A file's address has its digest,
// so that one that is kept never has to be asked for again; the page itself is asked for each time.
"use strict";
const FILES = $files;
const PAGE = new URL("./", self.location).href;
const CACHE = `keras-addnorm $${PAGE}`;

async function keepAll() {
  const cache = await caches.open(CACHE);
  await cache.add(new Request(PAGE, { cache: "no-cache" }));
  for (const file of FILES) {
    if (!(await cache.match(file))) await cache.add(file);
  }
  await self.skipWaiting();
}

async function forgetOthers() {
  const cache = await caches.open(CACHE);
  const wanted = new Set([PAGE, ...FILES.map((file) => new URL(file, PAGE).href)]);
  for (const request of await cache.keys()) {
    if (!wanted.has(request.url)) await cache.delete(request);
  }
  await self.clients.claim();
}

async function answer(request) {
  const cache = await caches.open(CACHE);
  if (request.mode !== "navigate") return (await cache.match(request)) ?? fetch(request);
  try {
    return await fetch(request.url, { cache: "no-cache" });
  } catch (error) {
    const kept = await cache.match(PAGE);
    if (kept) return kept;
    throw error;
  }
}

self.addEventListener("install", (event) => event.waitUntil(keepAll()));
self.addEventListener("activate", (event) => event.waitUntil(forgetOthers()));
self.addEventListener("fetch", (event) => {
  const { url, method } = event.request;
  if (method === "GET" && url.startsWith(PAGE)) event.respondWith(answer(event.request));
});
