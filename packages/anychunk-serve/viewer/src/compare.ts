/** Two images in the same pixels. Pure. */

import { codeOf, transformOf } from "./coordinates";
import type { Image, Level } from "./image";
import { sizeOf } from "./view";

interface Along {
  /** Length of one element of the other image, in pixels of the first. */
  size: number;
  /** Where its first element begins. */
  from: number;
}

/** Return an image with its levels in the pixels of another one; throws an Error with the reason if it cannot. */
export function placed(image: Image, base: Image): Image {
  const [x, y] = [along(image, base, "x"), along(image, base, "y")];
  if (!(x.size > 0) || !(y.size > 0))
    throw new Error(`${image.file} is flipped against ${base.file}; both must have the same direction`);
  const change = (values: number[], isCorner: boolean): number[] =>
    values.map((value, axis) => {
      const by = axis === image.x ? x : axis === image.y ? y : null;
      return by === null ? value : value * by.size + (isCorner ? by.from : 0);
    });
  const levels = image.levels.map((level): Level => ({
    ...level,
    factor: change(level.factor, false),
    corner: change(level.corner, true),
  }));
  const { width, height } = sizeOf(image);
  const extent = {
    left: x.from,
    top: y.from,
    right: x.from + width * x.size,
    bottom: y.from + height * y.size,
  };
  const mask = image.mask && { ...image.mask, extent };
  return { ...image, levels, extent, mask };
}

function along(image: Image, base: Image, name: "x" | "y"): Along {
  const [own, other] = [transformOf(image), transformOf(base)];
  if (own && other) {
    if ([own, other].some(([, b, , d]) => b !== 0 || d !== 0))
      throw new Error("rotated images cannot be laid over others");
    const [code, wanted] = [codeOf(image) ?? image.crs, codeOf(base) ?? base.crs];
    if (code !== wanted)
      throw new Error(
        `${image.file} is in ${short(code)}, ${base.file} in ${short(wanted)}; both must be the same`,
      );
    const [size, from] = name === "x" ? [0, 2] : [4, 5];
    return { size: own[size]! / other[size]!, from: (own[from]! - other[from]!) / other[size]! };
  }
  if (own || other)
    throw new Error(`${(own ? base : image).file} has no place on a map, ${(own ? image : base).file} has`);
  const [mine, theirs] = [image[name], base[name]];
  const unit = image.axes[mine]!.unit;
  if (unit === null || unit !== base.axes[theirs]!.unit) return { size: 1, from: 0 };
  const size = image.scale[mine]! / base.scale[theirs]!;
  const shift = (image.translation[mine]! - base.translation[theirs]!) / base.scale[theirs]!;
  // positions are centres of elements
  return { size, from: shift + 0.5 - size / 2 };
}

const short = (crs: string | null): string =>
  crs === null ? "no system" : crs.length > 40 ? "another system" : crs;
