"""Random access into single compressed streams: deflate, LZW and bzip2.

`walk` decodes a stream from its start and remembers states to continue from. `deflate`, `lzw` and
`bzip2` decode a stream step by step, find points where decoding can begin, and decode from such a
point. The codec `anychunk.piece` and `anychunk.decode.pieces` use them.
"""
