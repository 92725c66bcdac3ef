/** Colour maps: 256 colours, interpolated between a few. Pure. */

/** Colours at equal steps of matplotlib's maps of the same names. */
const STOPS: Record<string, string> = {
  gray: "000000 ffffff",
  viridis: "440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
  magma: "000004 180f3d 440f76 721f81 9e2f7f cd4071 f1605d fd9668 feca8d fcfdbf",
  inferno: "000004 1b0c41 4a0c6b 781c6d a52c60 cf4446 ed6925 fb9b06 f7d13d fcffa4",
  plasma: "0d0887 46039f 7201a8 9c179e bd3786 d8576b ed7953 fb9f3a fdca26 f0f921",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  turbo:
    "30123b 4145ab 4675ed 39a2fc 1bcfd4 24eca6 61fc6c a4fc3c d1e834 f3c63a fe9b2d f36315 d93806 b11901 7a0402",
  blue_red: "053061 2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b 67001f",
};

export const MAPS: readonly string[] = Object.keys(STOPS);

/** 256 colours as consecutive (red, green, blue). */
export type Colours = Uint8Array;

const channels = (hex: string): number[] => [0, 2, 4].map((i) => Number.parseInt(hex.slice(i, i + 2), 16));

export function colours(name: string, reversed = false): Colours {
  const stops = (STOPS[name] ?? STOPS["gray"]!).split(" ").map(channels);
  const out = new Uint8Array(256 * 3);
  for (let i = 0; i < 256; i++) {
    const place = ((reversed ? 255 - i : i) / 255) * (stops.length - 1);
    const first = Math.min(Math.floor(place), stops.length - 2);
    for (let c = 0; c < 3; c++) {
      const [from, to] = [stops[first]![c]!, stops[first + 1]![c]!];
      out[3 * i + c] = Math.round(from + (to - from) * (place - first));
    }
  }
  return out;
}

export function cssGradient(map: Colours): string {
  const stops = Array.from({ length: 17 }, (_, i) => Math.round((i * 255) / 16) * 3);
  return `linear-gradient(90deg, ${stops.map((i) => `rgb(${map[i]}, ${map[i + 1]}, ${map[i + 2]})`).join(", ")})`;
}
