/* The decoded size of an .xz stream of one block, if its parts follow each other without a gap to the end of the data; the
 * .xz file format, sections 2 to 4. `codecs/streams.py` has the same in Python, and says what for.
 *
 * A strip of one row decodes in some 60 microseconds, and the same in Python takes a tenth of that.
 */
#include "native.h"

#include <string.h>

enum { HEADER = 12, LZMA2 = 0x21, CHECKS = 16, MOST_EXPONENT = 40, NONE = -1 };
static const uint8_t check_bytes[CHECKS] = {0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64};

/* Return an integer of seven bits per byte, of at most 63 bits; move `at` to where it ends. */
static int64_t integer(const uint8_t *data, int64_t length, int64_t *at)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 63 && *at < length; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            break;
    }
    return (int64_t)value;
}

/* Return what the chunks of LZMA2 from `at` to the end marker at `last` decode to, by their headers. */
static int64_t lzma2_bytes(const uint8_t *data, int64_t at, int64_t last)
{
    int64_t total = 0;
    while (at < last - 5) {
        int control = data[at];
        int64_t decoded = 1 + (data[at + 1] << 8 | data[at + 2]);
        if (control >= 0x80) { /* compressed; from 0xC0 on with properties */
            total += decoded + ((int64_t)(control & 0x1F) << 16);
            at += 1 + (data[at + 3] << 8 | data[at + 4]) + (control >= 0xC0 ? 6 : 5);
        } else if (control == 1 || control == 2) { /* not compressed */
            total += decoded;
            at += 3 + decoded;
        } else {
            return NONE;
        }
    }
    return at == last && data[last] == 0 ? total : NONE;
}

static int64_t block_bytes(const uint8_t *data, int64_t length, int64_t most_memory)
{
    if (length < 3 * HEADER)
        return NONE;
    const uint8_t *tail = data + length - HEADER;
    int64_t size = 4 * ((int64_t)(tail[4] | tail[5] << 8 | tail[6] << 16 | (uint32_t)tail[7] << 24) + 1);
    int64_t start = length - HEADER - size;
    if (start < 2 * HEADER || memcmp(data, "\xfd" "7zXZ", 6) != 0 || memcmp(tail + HEADER - 2, "YZ", 2) != 0)
        return NONE;
    /* the index: its marker, the number of records, two sizes, padding and a checksum */
    const uint8_t *index = data + start;
    int64_t at = 2, unpadded = integer(index, size, &at), nbytes = integer(index, size, &at);
    if (index[0] != 0 || index[1] != 1 || size - at < 4 || size - at >= 8 || data[7] >= CHECKS || unpadded > length)
        return NONE;
    int64_t end = HEADER + unpadded - check_bytes[data[7]];
    if (HEADER + (unpadded + 3) / 4 * 4 != start || end <= 2 * HEADER)
        return NONE;
    /* the header of the block: its size, no flags, and the only filter with its dictionary */
    const uint8_t *block = data + HEADER;
    int exponent = block[4];
    if (block[1] != 0 || block[2] != LZMA2 || block[3] != 1 || exponent > MOST_EXPONENT
        || (int64_t)(2 | (exponent & 1)) << (exponent / 2 + 11) > most_memory)
        return NONE;
    return lzma2_bytes(data, HEADER + 4 * (block[0] + 1), end - 1) == nbytes ? nbytes : NONE;
}

PyObject *xz_block(PyObject *module, PyObject *args)
{
    PyObject *source;
    long long most_memory;
    if (!PyArg_ParseTuple(args, "OL", &source, &most_memory))
        return NULL;
    Py_buffer from;
    if (PyObject_GetBuffer(source, &from, PyBUF_SIMPLE) < 0)
        return NULL;
    int64_t found = block_bytes(from.buf, from.len, most_memory);
    PyBuffer_Release(&from);
    return PyLong_FromLongLong(found);
}
