/* Decompression of chunks, in streams.c: by code of this module, or by functions of libraries that the process has loaded. */
#ifndef ANYCHUNK_STREAMS_H
#define ANYCHUNK_STREAMS_H

#include "native.h"

#include "lzw.h"

enum {
    STREAM_NONE,
    STREAM_PACKBITS,
    STREAM_LZW,
    STREAM_DEFLATE,
    STREAM_ZSTD,
    STREAM_XZ,
    STREAM_LERC,
    STREAM_WEBP,
    STREAM_FAX,
    STREAM_JPEG, /* in jpeg_pictures.c */
    STREAM_GZIP,
    STREAM_BLOSC,
    STREAM_KINDS,
};

enum { MOST_FUNCTIONS = 8 };

typedef struct {
    int kind;
    uintptr_t functions[MOST_FUNCTIONS]; /* addresses; streams.c says of what */
    /* what pictures must be; streams of bytes do not state it */
    int64_t rows, columns, bands;
    int number;             /* the type of their samples, as LERC numbers it; whether bits of facsimile are reversed;
                             * whether nothing may follow a stream of deflate or gzip */
    const uint16_t *tables; /* of facsimile */
    void *state;
} Stream;

/* Return how many functions a kind needs. */
int function_count(int kind);

/* Prepare for any number of chunks; return 0 without memory. */
int begin_stream(Stream *stream);

/* Decode a chunk, which must be complete, to exactly `nbytes` bytes; return 0 if it does not decode to that. There is
 * room for one byte more. */
int decode_stream(Stream *stream, const uint8_t *data, size_t length, uint8_t *out, size_t nbytes);

void end_stream(Stream *stream);

#endif
