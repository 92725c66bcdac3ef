// Run the vectors of `cast_value` and `scale_offset` through zarrita, and print who passes what as JSON.
//
//     npm install zarrita@0.7.5 && node specs/vectors/run_zarrita.mjs

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// from the folder where npm installed it
const zarr = await import(pathToFileURL(`${process.cwd()}/node_modules/zarrita/dist/src/index.js`));
const load = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, import.meta.url)));

const ARRAYS = {
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
  float16: globalThis.Float16Array, float32: Float32Array, float64: Float64Array,
};
const BITS = { float16: Uint16Array, float32: Uint32Array, float64: BigUint64Array };

/** One JSON scalar as an array of one element. */
function arrayOf(value, type) {
  const array = new ARRAYS[type](1);
  if (typeof value === "string" && value.startsWith("0x")) {
    new BITS[type](array.buffer)[0] = type === "float64" ? BigInt(value) : Number(value);
  } else {
    array[0] = array instanceof BigInt64Array || array instanceof BigUint64Array ? BigInt(value) : Number(value);
  }
  return array;
}

function isExpected(found, expected) {
  if (Array.isArray(expected)) return expected.some((one) => isExpected(found, one));
  if (expected === null || found === null) return found === expected;
  if (expected === "NaN") return Number.isNaN(found);
  if (typeof found === "bigint") return found === BigInt(expected);
  return Object.is(Number(expected), -0) ? Object.is(found, -0) : found === Number(expected);
}

/** The decoded value; null for an error, undefined where zarrita has no such conversion: it encodes nothing. */
async function run(way, value, decoded, stored, codec) {
  if (way === "encode") return undefined;
  const given = arrayOf(value, stored);
  const metadata = {
    zarr_format: 3, node_type: "array", shape: [1], data_type: decoded, fill_value: 0, attributes: {},
    chunk_grid: { name: "regular", configuration: { chunk_shape: [1] } },
    chunk_key_encoding: { name: "default", configuration: { separator: "/" } },
    codecs: [codec, { name: "bytes", configuration: { endian: "little" } }],
  };
  // long integers are literals in the metadata, as other software writes them
  const text = JSON.stringify(metadata).replace(/"(-?\d{16,})"/g, "$1");
  const store = new Map([["/zarr.json", new TextEncoder().encode(text)]]);
  store.set("/c/0", new Uint8Array(given.buffer.slice(0)));
  try {
    const array = await zarr.open(store, { kind: "array" });
    return (await zarr.get(array)).data[0];
  } catch (error) {
    return /only supports/.test(error.message) ? undefined : null;
  }
}

const outcome = () => ({ passed: 0, failed: 0, absent: 0, causes: {} });

function count(total, found, expected, cause, what) {
  if (found === undefined) total.absent += 1;
  else if (isExpected(found, expected)) total.passed += 1;
  else {
    total.failed += 1;
    const kind = found === null ? "an error instead of a result" : expected === null ? "a result instead of an error" : "another value";
    const known = (total.causes[`${kind}: ${cause}`] ??= { cases: 0, example: what(found) });
    known.cases += 1;
  }
}

async function castValue() {
  const vectors = load("cast_value");
  const total = outcome();
  for (const group of vectors.groups) {
    const { source, target } = group;
    const inputs = group.in_text ?? group.in;
    const pairs = group.scalar_map_text ?? group.scalar_map;
    for (const [row, [numbers, out]] of group.out.entries()) {
      const results = group.out_text?.[row][1] ?? out;
      for (const number of numbers) {
        const { rounding, out_of_range } = vectors.configurations[number];
        for (const way of ["encode", "decode"]) {
          if (way === "decode" && out_of_range === "wrap" && source.startsWith("float")) continue;
          for (const [i, value] of inputs.entries()) {
            if (!ARRAYS[source] || !ARRAYS[target]) {
              total.absent += 1;
              continue;
            }
            const [decoded, stored] = way === "encode" ? [source, target] : [target, source];
            const configuration = { data_type: stored, rounding, ...(out_of_range && { out_of_range }), ...(pairs && { scalar_map: { [way]: pairs } }) };
            const found = await run(way, value, decoded, stored, { name: "cast_value", configuration });
            const cause = pairs ? "scalar_map" : `${/^u?int/.exec(source) ? "integer" : "float"} to ${/^u?int/.exec(target) ? "integer" : "float"}, ${out_of_range ?? "no out_of_range"}`;
            count(total, found, results[i], cause, (got) => `${way} ${value} ${source} to ${target}, ${rounding}: ${got}, expected ${results[i]}`);
          }
        }
      }
    }
  }
  return total;
}

async function scaleOffset() {
  const total = outcome();
  for (const group of load("scale_offset").groups) {
    const type = group.data_type;
    const configuration = {};
    for (const key of ["offset", "scale"]) if (key in group) configuration[key] = group[`${key}_text`] ?? group[key];
    for (const way of ["encode", "decode"]) {
      const { in: plain, in_text, out, out_text } = group[way];
      for (const [i, value] of (in_text ?? plain).entries()) {
        if (!ARRAYS[type]) {
          total.absent += 1;
          continue;
        }
        const expected = (out_text ?? out)[i];
        const found = await run(way, value, type, type, { name: "scale_offset", configuration });
        count(total, found, expected, `${way}, ${type.startsWith("float") ? "float" : "integer"}`, (got) => `${value} ${type} ${JSON.stringify(configuration)}: ${got}, expected ${expected}`);
      }
    }
  }
  return total;
}

const found = { cast_value: await castValue(), scale_offset: await scaleOffset() };
const { version } = JSON.parse(readFileSync(`${process.cwd()}/node_modules/zarrita/package.json`));
console.log(JSON.stringify({ name: "zarrita", version, found }));
