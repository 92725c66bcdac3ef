// Reads images with Viv's loaders: first plane of the first and the last level, and a tile, of each url.
import { loadOmeZarr } from "@vivjs/loaders";

const found = {};
for (const url of process.argv.slice(2)) {
  const { data, metadata } = await loadOmeZarr(url, { type: "multiscales" });
  const first = data[0];
  const selection = Object.fromEntries(first.labels.slice(0, -2).map((label) => [label, 1]));
  const plain = ({ data, width, height }) => ({ shape: [height, width], values: Array.from(data) });
  found[url] = {
    labels: first.labels,
    shape: first.shape,
    shapes: data.map((level) => level.shape),
    dtype: first.dtype,
    channels: metadata.omero?.channels.map(({ label }) => label) ?? [],
    plane: plain(await first.getRaster({ selection })),
    tile: plain(await first.getTile({ x: 0, y: 0, selection })),
    tileSize: first.tileSize,
  };
}
process.stdout.write(JSON.stringify(found));
