/* Group 4 facsimile (ITU-T T.6), in fax.c. */
#ifndef ANYCHUNK_FAX_H
#define ANYCHUNK_FAX_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the tables that `codecs/_fax_lines.py` makes. */
extern const size_t fax_tables_bytes;

/* Return memory for rows of a width, to be freed; NULL if they are too wide. */
int32_t *new_fax_memory(int64_t width);

/* Return whether the data are exactly these rows, in bytes of 0 and 1; if they are not, `pixels` has been written to,
 * too. `black` is the value of black pixels. */
int decode_fax(const uint16_t *tables, const uint8_t *data, int64_t length, uint8_t *pixels, int64_t rows,
               int64_t width, int is_reversed, int black, int32_t *memory);

#endif
