/* Rows of Group 4 facsimile (ITU-T T.6), one byte per pixel, decoded straight to their place.
 *
 * Only data that are exactly what T.6 prescribes are decoded: every code is one of the tables, changes of colour move to
 * the right, rows end at their width, and the end-of-block code follows the last row. For anything else the answer is
 * "no", and the caller asks libtiff, which reads more, and says what is wrong.
 *
 * The tables of codes come from Python, where they are written down once. Their entries are numbers of bits, 1 to 13,
 * and values; any other content of the tables gives wrong pixels at worst, never an access outside of the buffers.
 */
#include "native.h"

#include "fax.h"
#include <stdlib.h>
#include <string.h>

enum { RUN_BITS = 13, RUNS = 1 << RUN_BITS, MODE_BITS = 7, MODES = 1 << MODE_BITS };
/* an entry is 16 bits: the number of bits of the code in the lowest four, the value above them */
enum { BITS_MASK = 15, VALUE_SHIFT = 4, NO_CODE = 0xfff };
/* values of the table of modes; vertical modes are the distance of the change plus VERTICAL */
enum { PASS = 0, HORIZONTAL = 1, VERTICAL = 5, FARTHEST = 3 };
enum { WIDEST = 1 << 24 };
enum { END_OF_BLOCK_BITS = 24, END_OF_BLOCK = 0x001001 };

typedef struct {
    const uint8_t *data;
    Py_ssize_t size, next;
    uint64_t bits; /* the next bits of the stream, from the highest one */
    int count;     /* how many of them are valid; zeros follow, as behind the end of the stream */
    int is_reversed;
    int beyond;    /* bits that were taken behind the end of the stream */
} Reader;

static uint8_t reversed(uint8_t byte)
{
    byte = (uint8_t)((byte & 0xf0) >> 4 | (byte & 0x0f) << 4);
    byte = (uint8_t)((byte & 0xcc) >> 2 | (byte & 0x33) << 2);
    return (uint8_t)((byte & 0xaa) >> 1 | (byte & 0x55) << 1);
}

/* Make at least 56 bits valid, unless the stream ends before. */
static inline void refill(Reader *reader)
{
    while (reader->count <= 56 && reader->next < reader->size) {
        uint8_t byte = reader->data[reader->next++];
        if (reader->is_reversed)
            byte = reversed(byte);
        reader->bits |= (uint64_t)byte << (56 - reader->count);
        reader->count += 8;
    }
}

static inline unsigned int peek(const Reader *reader, int bits) { return (unsigned int)(reader->bits >> (64 - bits)); }

static inline void skip(Reader *reader, int bits)
{
    reader->bits <<= bits;
    reader->count -= bits;
    if (reader->count < 0) {
        reader->beyond -= reader->count;
        reader->count = 0;
    }
}

/* Return the length of the next run, or -1: make-up codes, then a terminating code, of at most `most` pixels. */
static inline int32_t read_run(Reader *reader, const uint16_t *table, int32_t most)
{
    int32_t total = 0;
    for (;;) {
        if (reader->count < RUN_BITS)
            refill(reader);
        uint16_t entry = table[peek(reader, RUN_BITS)];
        int value = entry >> VALUE_SHIFT;
        skip(reader, entry & BITS_MASK);
        total += value;
        if (value == NO_CODE || total > most)
            return -1;
        if (value < 64)
            return total;
    }
}

typedef struct {
    const uint16_t *runs[2], *modes;
    int32_t width;
    uint8_t black;
} Page;

/* Decode a row; return how many changes it has, or -1 if it is not as T.6 prescribes.
 *
 * `above` and `changes` are positions of changes of colour, the first of them to black, followed by `width` three times.
 */
static int32_t decode_row(Reader *reader, const Page *page, const int32_t *above, int32_t *changes, uint8_t *row)
{
    const int32_t width = page->width;
    int32_t at = -1, found = 0, i = 0; /* -1: the imaginary white pixel before the row */
    int is_black = 0;
    while (at < width) {
        if (reader->count < MODE_BITS)
            refill(reader);
        uint16_t entry = page->modes[peek(reader, MODE_BITS)];
        int mode = entry >> VALUE_SHIFT;
        skip(reader, entry & BITS_MASK);
        /* b1: the first change above, to the right of `at`, to the other colour */
        while (above[i] <= at && above[i] < width)
            i += 2;
        if (mode >= VERTICAL - FARTHEST && mode <= VERTICAL + FARTHEST) {
            int32_t change = above[i] + mode - VERTICAL;
            if (change <= at || change > width)
                return -1;
            if (is_black)
                memset(row + changes[found - 1], page->black, (size_t)(change - changes[found - 1]));
            changes[found++] = at = change;
            is_black = !is_black;
            i = i > 0 ? i - 1 : i + 1;
        } else if (mode == HORIZONTAL) {
            int32_t start = at < 0 ? 0 : at;
            int32_t one = read_run(reader, page->runs[is_black], width - start);
            if (one < 0 || (one == 0 && at >= 0))
                return -1;
            int32_t two = read_run(reader, page->runs[!is_black], width - start - one);
            if (two < 0 || (two == 0 && start + one < width))
                return -1;
            int32_t middle = start + one;
            int32_t first = is_black ? changes[found - 1] : middle, last = is_black ? middle : middle + two;
            memset(row + first, page->black, (size_t)(last - first));
            changes[found++] = middle;
            at = middle + two;
            if (two > 0)
                changes[found++] = at;
        } else if (mode == PASS) {
            if (above[i] >= width || above[i + 1] >= width)
                return -1; /* no encoder ends a row like that */
            at = above[i + 1];
        } else {
            return -1;
        }
    }
    changes[found] = changes[found + 1] = changes[found + 2] = width;
    return reader->beyond ? -1 : found;
}

static int decode_rows(Reader *reader, const Page *page, uint8_t *pixels, int64_t rows, int32_t *memory)
{
    int32_t *above = memory, *changes = memory + page->width + 8;
    above[0] = above[1] = above[2] = page->width;
    memset(pixels, !page->black, (size_t)(rows * page->width));
    for (int64_t row = 0; row < rows; row++) {
        if (decode_row(reader, page, above, changes, pixels + row * page->width) < 0)
            return 0;
        int32_t *other = above;
        above = changes;
        changes = other;
    }
    refill(reader);
    return reader->count >= END_OF_BLOCK_BITS && peek(reader, END_OF_BLOCK_BITS) == END_OF_BLOCK;
}

const size_t fax_tables_bytes = sizeof(uint16_t) * (2 * RUNS + MODES);

int32_t *new_fax_memory(int64_t width)
{
    return width < 1 || width > WIDEST ? NULL : malloc(sizeof(int32_t) * 2 * (size_t)(width + 8));
}

int decode_fax(const uint16_t *tables, const uint8_t *data, int64_t length, uint8_t *pixels, int64_t rows,
               int64_t width, int is_reversed, int black, int32_t *memory)
{
    Page page = {{tables, tables + RUNS}, tables + 2 * RUNS, (int32_t)width, (uint8_t)black};
    Reader reader = {data, (Py_ssize_t)length, 0, 0, 0, is_reversed, 0};
    return decode_rows(&reader, &page, pixels, rows, memory);
}

/* fax_rows(tables, data, pixels, is_reversed, black): the same for a chunk by itself. */
PyObject *fax_rows(PyObject *module, PyObject *args)
{
    Py_buffer tables, data, pixels;
    int is_reversed, black, is_done = 0;
    PyObject *target;
    if (!PyArg_ParseTuple(args, "y*y*Opp", &tables, &data, &target, &is_reversed, &black))
        return NULL;
    if (PyObject_GetBuffer(target, &pixels, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&tables);
        PyBuffer_Release(&data);
        return NULL;
    }
    int is_usable = tables.len == (Py_ssize_t)fax_tables_bytes && pixels.ndim == 2 && pixels.itemsize == 1
                    && pixels.shape[0] > 0;
    int32_t *memory = is_usable ? new_fax_memory(pixels.shape[1]) : NULL;
    if (memory != NULL) {
        Py_BEGIN_ALLOW_THREADS
        is_done = decode_fax(tables.buf, data.buf, data.len, pixels.buf, pixels.shape[0], pixels.shape[1], is_reversed,
                             black, memory);
        Py_END_ALLOW_THREADS
        free(memory);
    }
    PyBuffer_Release(&tables);
    PyBuffer_Release(&data);
    PyBuffer_Release(&pixels);
    return PyBool_FromLong(is_done);
}
