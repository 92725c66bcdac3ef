/* Placing the rows of a strip or tile, in rows.c: one chunk at a time there, many in chunks.c. */
#ifndef ANYCHUNK_ROWS_H
#define ANYCHUNK_ROWS_H

#include "native.h"

#include "packbits.h"

typedef struct {
    int64_t rows, columns; /* that are stored */
    int64_t bands;
    int size; /* of a sample, in bytes */
    int predictor, is_swapped, best;
} Layout;

/* What placing some rows needs beside them. */
typedef struct {
    Layout layout;
    const Py_buffer *target;
    int64_t band_stride;
    int64_t row0, column0, band0; /* what the target has of each chunk begins there */
    int is_part;                  /* whether any part may begin behind the first column, or have fewer bands */
    uint8_t *memory; /* in which rows are taken apart, `block` at a time; NULL if they are not */
    int64_t block;
} Placing;

/* Return whether rows only have to be copied, or summed (predictor 2): there are no bands to take apart. */
int is_plain(const Layout *layout);

/* Return the bytes of one row. */
int64_t row_bytes(const Layout *layout);

/* Return the bytes of all rows of a layout that was not looked at yet; -1 if there can be no array of that size. */
int64_t whole_bytes(const Layout *layout);

/* Return how many rows fit into the processor's cache: at least one, and no more than there are. */
int64_t block_rows(const Layout *layout);

/* Return whether `length` bytes of decompressed rows have such a place; `placing->memory` is to be freed. */
int prepare_rows(Placing *placing, const Py_buffer *target, Py_ssize_t length);

/* The same without a target: return whether there are such rows, and memory for them. */
int prepare_layout(Placing *placing, Py_ssize_t length);

/* Place all rows. */
void place(const uint8_t *data, const Placing *placing);

/* Place `rows` rows, the first of which is row `first` of the chunk; what the target has no row for is left out. */
void place_some(const uint8_t *data, const Placing *placing, int64_t first, int64_t rows);

/* Decode PackBits and place its rows, `block` at a time: those of a large tile would not stay in the cache until all are
 * decoded. `memory` has room for a block and LONGEST_RUN more bytes. Return whether that were exactly all rows; if not,
 * some may have been placed. */
int unpack_rows(Packed *packed, const Placing *placing, uint8_t *memory, int64_t block);

#endif
