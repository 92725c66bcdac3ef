"""From stored bytes to pixels: the bytes of chunks, and boxes of decoded pixels."""
