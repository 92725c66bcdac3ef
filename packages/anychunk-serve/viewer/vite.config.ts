import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { defineConfig, type Plugin } from "vite";

const here = import.meta.dirname;
const page = join(here, "../src/anychunk_serve/page");

/** Return the files that the page is built from; tests/test_page.py hashes the same ones. */
function sources(): string[] {
  const under = readdirSync(join(here, "src"), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(here, join(entry.parentPath, entry.name)));
  return [
    ...under,
    "index.html",
    "package-lock.json",
    "package.json",
    "tsconfig.json",
    "vite.config.ts",
  ].sort();
}

/** Write a hash of the sources next to the page built from them. */
function stamp(): Plugin {
  return {
    name: "stamp",
    closeBundle() {
      const hash = createHash("sha256");
      for (const name of sources())
        hash
          .update(`${name}\0`)
          .update(readFileSync(join(here, name)))
          .update("\0");
      writeFileSync(join(page, "SOURCES.sha256"), `${hash.digest("hex")}\n`);
    },
  };
}

export default defineConfig({
  base: "/",
  // decoders that the page does not need: it reads uncompressed chunks
  resolve: { alias: [{ find: /^numcodecs\/(blosc|lz4|zstd)$/, replacement: join(here, "src/nocodec.ts") }] },
  build: {
    outDir: page,
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    // no data: urls, which the content security policy refuses
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "^/(api|zarr|zarr-raw|zarr-labels|raw|thumb)/": "http://127.0.0.1:8000" } },
  plugins: [stamp()],
});
