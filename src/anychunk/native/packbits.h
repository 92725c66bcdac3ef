/* PackBits (TIFF 6.0 section 9), which is decoded in lzw.c, and a few rows at a time in rows.c. */
#ifndef ANYCHUNK_PACKBITS_H
#define ANYCHUNK_PACKBITS_H

#include <stdint.h>

enum { LONGEST_RUN = 128 };

typedef struct {
    const uint8_t *data;
    int64_t length;
    int64_t at; /* of the next run */
} Packed;

/* Decode runs until there are `enough` bytes, or the data end; return how many bytes that were. A last run may add fewer
 * than LONGEST_RUN bytes to what is enough, but not exceed `room`: then, or if the data end within a run, the result
 * is negative. */
int64_t unpack(Packed *packed, uint8_t *out, int64_t enough, int64_t room);

#endif
