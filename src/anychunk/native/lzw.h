/* LZW (TIFF 6.0 section 13), in lzw.c. */
#ifndef ANYCHUNK_LZW_H
#define ANYCHUNK_LZW_H

#include <stdint.h>

typedef struct LzwTable LzwTable;

/* Return what decoding needs, to be freed, and of use for any number of streams; NULL without memory. */
LzwTable *new_lzw_table(void);

/* Return how many bytes were decoded: all that there is room for, at most UINT32_MAX, or as many as there are before an
 * end code; negative if the stream is not exactly as the specification prescribes. */
int64_t decode_lzw(const uint8_t *data, int64_t length, uint8_t *out, int64_t room, LzwTable *table);

#endif
