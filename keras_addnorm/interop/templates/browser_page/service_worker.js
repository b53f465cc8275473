// Keeps the files of the page, so that it opens without a network. A file's address has its digest:
// one that is kept need not be asked for again. The page itself is asked for each time.
"use strict";
// With the page that has this digest: $page
const FILES = $files.map((file) => new URL(file, self.location).href);
const PAGE = new URL("./", self.location).href;
const PAGES = [PAGE, `$${PAGE}index.html`];
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
  for (const request of await cache.keys()) {
    if (request.url !== PAGE && !FILES.includes(request.url)) await cache.delete(request);
  }
  await self.clients.claim();
}

async function pageOf(request) {
  const kept = await (await caches.open(CACHE)).match(PAGE);
  try {
    const found = await fetch(request.url, { cache: "no-cache" });
    // Browsers take no page from here that comes from another address than they asked for.
    if (found.redirected) return Response.redirect(found.url);
    if (found.status < 500 || !kept) return found;
  } catch (error) {
    if (!kept) throw error;
  }
  return kept;
}

const fileOf = async (request) => (await (await caches.open(CACHE)).match(request)) ?? fetch(request);

self.addEventListener("install", (event) => event.waitUntil(keepAll()));
self.addEventListener("activate", (event) => event.waitUntil(forgetOthers()));
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== "GET") return;
  if (FILES.includes(request.url)) event.respondWith(fileOf(request));
  else if (PAGES.includes(origin + pathname)) event.respondWith(pageOf(request));
});
