/** Paints channels on the GPU, by WebGL 2; the same formula as in paint.ts, in 32-bit floats. */

import type { Plane } from "./contrast";
import type { Painting } from "./paint";

/** Most channels that are added up; more are painted without the GPU. */
const MOST_CHANNELS = 32;
/** Most bytes of textures that are cached. */
const KEPT_BYTES = 96 * 2 ** 20;

const VERTEX = `#version 300 es
in vec2 corner;
void main() { gl_Position = vec4(corner, 0.0, 1.0); }`;

/** `sampler` is that of unsigned integers, integers or floats. */
const fragment = (sampler: string): string => `#version 300 es
precision highp float;
precision highp int;
precision highp ${sampler};
uniform ${sampler} samples;
uniform int count;
uniform int height;
uniform bool hasFill;
uniform bool hasMask;
uniform float fill;
uniform float valid;
uniform vec2 limits[${MOST_CHANNELS}];
uniform vec3 colour[${MOST_CHANNELS}];
uniform vec2 shape[${MOST_CHANNELS}]; // gamma, inverted
out vec4 pixel;
float at(int layer) {
  ivec2 place = ivec2(int(gl_FragCoord.x), height - 1 - int(gl_FragCoord.y));
  return float(texelFetch(samples, ivec3(place, layer), 0).r);
}
void main() {
  vec3 sum = vec3(0.0);
  bool isFill = hasFill;
  bool isAbsent = true;
  for (int i = 0; i < count; i++) {
    float value = at(i);
    isFill = isFill && value == fill;
    bool isNumber = value == value;
    isAbsent = isAbsent && !isNumber;
    vec2 limit = limits[i];
    float part = limit.y > limit.x ? (value - limit.x) / (limit.y - limit.x) : (value >= limit.y ? 1.0 : 0.0);
    part = isNumber ? clamp(part, 0.0, 1.0) : 0.0;
    if (shape[i].x != 1.0) part = part > 0.0 ? pow(part, shape[i].x) : 0.0;
    if (shape[i].y > 0.5) part = 1.0 - part;
    sum += colour[i] * part;
  }
  if (isFill || (isAbsent && count > 0) || (hasMask && at(count) != valid)) { pixel = vec4(0.0); return; }
  pixel = vec4(floor(255.0 * min(sum, vec3(1.0)) + 0.5) / 255.0, 1.0);
}`;

type Kind = "usampler2DArray" | "isampler2DArray" | "sampler2DArray";

interface Format {
  sampler: Kind;
  internal: number;
  format: number;
  type: number;
}

interface Texture {
  texture: WebGLTexture;
  format: Format;
  bytes: number;
}

export class Gpu {
  readonly #gl: WebGL2RenderingContext;
  readonly #canvas: HTMLCanvasElement;
  readonly #programs = new Map<Kind, WebGLProgram>();
  /** By the array of planes of a tile. */
  readonly #textures = new Map<readonly Plane[], Texture>();
  #bytes = 0;
  #isLost = false;

  /** Return a painter, or null if the browser has no WebGL 2, or only an emulated one that is slow. */
  static open(isForced: boolean): Gpu | null {
    const canvas = document.createElement("canvas");
    const gl = canvas.getContext("webgl2", {
      premultipliedAlpha: false,
      preserveDrawingBuffer: true,
      failIfMajorPerformanceCaveat: !isForced,
    });
    return gl && (isForced || !isEmulated(gl)) ? new Gpu(gl, canvas) : null;
  }

  private constructor(gl: WebGL2RenderingContext, canvas: HTMLCanvasElement) {
    this.#gl = gl;
    this.#canvas = canvas;
    canvas.addEventListener("webglcontextlost", () => (this.#isLost = true));
    const corners = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, corners);
    gl.bufferData(gl.ARRAY_BUFFER, new Float32Array([-1, -1, 3, -1, -1, 3]), gl.STATIC_DRAW);
    gl.enableVertexAttribArray(0);
    gl.vertexAttribPointer(0, 2, gl.FLOAT, false, 0, 0);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
  }

  /** Paint a tile and return the canvas that holds it until the next call; null: not possible here. */
  paint(
    planes: readonly Plane[],
    painting: Painting,
    width: number,
    height: number,
  ): HTMLCanvasElement | null {
    const count = painting.limits.length;
    if (this.#isLost || painting.kind !== "channels" || painting.alpha || !count || count > MOST_CHANNELS)
      return null;
    const kept = this.#textures.get(planes) ?? this.#upload(planes, width, height);
    if (!kept) return null;
    const gl = this.#gl;
    if (this.#canvas.width !== width || this.#canvas.height !== height)
      Object.assign(this.#canvas, { width, height });
    gl.viewport(0, 0, width, height);
    const program = this.#program(kept.format.sampler);
    const place = (name: string): WebGLUniformLocation | null => gl.getUniformLocation(program, name);
    gl.useProgram(program);
    gl.bindTexture(gl.TEXTURE_2D_ARRAY, kept.texture);
    gl.uniform1i(place("count"), count);
    gl.uniform1i(place("height"), height);
    const hasFill = painting.fill !== null && !Number.isNaN(painting.fill);
    gl.uniform1i(place("hasFill"), Number(hasFill));
    gl.uniform1f(place("fill"), hasFill ? painting.fill! : 0);
    gl.uniform1i(place("hasMask"), Number(painting.valid !== null));
    gl.uniform1f(place("valid"), painting.valid ?? 0);
    gl.uniform2fv(place("limits"), painting.limits.flat());
    gl.uniform3fv(
      place("colour"),
      painting.channels.flatMap(({ color }) => [...color]),
    );
    gl.uniform2fv(
      place("shape"),
      painting.channels.flatMap(({ gamma, inverted }) => [gamma, Number(inverted)]),
    );
    gl.drawArrays(gl.TRIANGLES, 0, 3);
    return gl.isContextLost() ? null : this.#canvas;
  }

  #upload(planes: readonly Plane[], width: number, height: number): Texture | null {
    const gl = this.#gl;
    const format = formatOf(gl, planes[0]!);
    const isOne = planes.every((plane) => plane.constructor === planes[0]!.constructor);
    if (!format || !isOne || planes.some((plane) => plane.length !== width * height)) return null;
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D_ARRAY, texture);
    gl.texStorage3D(gl.TEXTURE_2D_ARRAY, 1, format.internal, width, height, planes.length);
    planes.forEach((plane, layer) =>
      gl.texSubImage3D(
        gl.TEXTURE_2D_ARRAY,
        0,
        0,
        0,
        layer,
        width,
        height,
        1,
        format.format,
        format.type,
        plane as ArrayBufferView,
      ),
    );
    gl.texParameteri(gl.TEXTURE_2D_ARRAY, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D_ARRAY, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    const kept = { texture, format, bytes: planes.reduce((sum, plane) => sum + plane.byteLength, 0) };
    this.#textures.set(planes, kept);
    this.#bytes += kept.bytes;
    for (const [old, { texture: unused, bytes }] of this.#textures) {
      if (this.#bytes <= KEPT_BYTES || old === planes) break;
      gl.deleteTexture(unused);
      this.#textures.delete(old);
      this.#bytes -= bytes;
    }
    return kept;
  }

  #program(sampler: Kind): WebGLProgram {
    const known = this.#programs.get(sampler);
    if (known) return known;
    const gl = this.#gl;
    const program = gl.createProgram();
    for (const [kind, source] of [
      [gl.VERTEX_SHADER, VERTEX],
      [gl.FRAGMENT_SHADER, fragment(sampler)],
    ] as const) {
      const shader = gl.createShader(kind)!;
      gl.shaderSource(shader, source);
      gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS) && !gl.isContextLost())
        throw new Error(`shader: ${gl.getShaderInfoLog(shader)}`);
      gl.attachShader(program, shader);
    }
    gl.bindAttribLocation(program, 0, "corner");
    gl.linkProgram(program);
    this.#programs.set(sampler, program);
    return program;
  }
}

/** Whether the CPU computes what the GPU should; painting without it is then faster. */
function isEmulated(gl: WebGL2RenderingContext): boolean {
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  const renderer: unknown = gl.getParameter(names ? names.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
  return /swiftshader|llvmpipe|softpipe|software/i.test(String(renderer));
}

/** Return the texture format of samples; null: a 32-bit float does not hold all values of their type. */
function formatOf(gl: WebGL2RenderingContext, plane: Plane): Format | null {
  if (plane instanceof Uint8Array)
    return { sampler: "usampler2DArray", internal: gl.R8UI, format: gl.RED_INTEGER, type: gl.UNSIGNED_BYTE };
  if (plane instanceof Uint16Array)
    return {
      sampler: "usampler2DArray",
      internal: gl.R16UI,
      format: gl.RED_INTEGER,
      type: gl.UNSIGNED_SHORT,
    };
  if (plane instanceof Int8Array)
    return { sampler: "isampler2DArray", internal: gl.R8I, format: gl.RED_INTEGER, type: gl.BYTE };
  if (plane instanceof Int16Array)
    return { sampler: "isampler2DArray", internal: gl.R16I, format: gl.RED_INTEGER, type: gl.SHORT };
  if (plane instanceof Float32Array)
    return { sampler: "sampler2DArray", internal: gl.R32F, format: gl.RED, type: gl.FLOAT };
  return null;
}
