/* JPEG pictures, decoded by libjpeg, in jpeg_pictures.c. */
#ifndef ANYCHUNK_JPEG_PICTURES_H
#define ANYCHUNK_JPEG_PICTURES_H

#include "rows.h"

enum { JPEG_FUNCTIONS = 7 };

typedef struct {
    const uintptr_t *functions;
    const uint8_t *tables; /* the tag JPEGTables, or NULL */
    size_t tables_length;
    int32_t colors[2][2]; /* of the stream and of the result, without a JFIF marker and with one; -1: as libjpeg does */
} JpegPictures;

/* Decode a picture, which must have exactly the size of the chunk, and place its rows; `memory` has room for a block of
 * rows. Return 0 if it is not such a picture, or libjpeg has anything to say about it; some rows may have been placed. */
int decode_jpeg(const JpegPictures *pictures, const uint8_t *data, size_t length, const Placing *placing,
                uint8_t *memory, int64_t block);

#endif
