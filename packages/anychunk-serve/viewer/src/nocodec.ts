/** Replaces decoders that are left out of the build: the page reads uncompressed chunks only. */
export default {
  fromConfig(): never {
    throw new Error("compressed chunks are not supported by this page");
  },
};
