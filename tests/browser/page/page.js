"use strict";

const BIG_FILE = "big.bin";

/** The SHA-256 of `bytes` in hexadecimal. */
async function sha256(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The protocol of every response that the page consists of, by the last part of its path. */
function protocols() {
  const entries = [
    ...performance.getEntriesByType("navigation"),
    ...performance.getEntriesByType("resource"),
  ];
  const name = (entry) => new URL(entry.name).pathname.split("/").pop() || "index.html";
  return Object.fromEntries(
    entries
      .filter((entry) => entry.name.startsWith(location.origin))
      .map((entry) => [name(entry), entry.nextHopProtocol]),
  );
}

/** Downloads the big file and says what became of everything. Called by run.py. */
async function check() {
  const started = performance.now();
  const response = await fetch(BIG_FILE, { cache: "no-store" });
  const bytes = await response.arrayBuffer();
  const seconds = (performance.now() - started) / 1000;
  const missing = await fetch("missing.txt");
  await missing.text();
  const image = document.getElementById("image");
  const state = document.getElementById("state");
  const result = {
    status: response.status,
    length: bytes.byteLength,
    sha256: await sha256(bytes),
    seconds,
    missing: missing.status,
    image: [image.naturalWidth, image.naturalHeight],
    color: getComputedStyle(state).color,
    protocols: protocols(),
  };
  state.textContent = "done";
  return result;
}
