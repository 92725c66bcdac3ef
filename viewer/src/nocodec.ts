/** Stands in for decoders that are left out: this server sends the page chunks without compression. */
export default {
  fromConfig(): never {
    throw new Error("this page reads only chunks without compression");
  },
};
