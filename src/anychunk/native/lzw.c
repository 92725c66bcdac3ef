/* LZW of TIFF 6.0 section 13, and PackBits of section 9.
 *
 * Both decode only what is exactly as the specification prescribes; the caller leaves everything else, such as a string
 * that reaches beyond the last row, or codes in the other bit order, to a decoder that knows what to do about it.
 *
 * A string of LZW is the one before it and one more byte, so it lies in what has been decoded already, as one piece:
 * the table says where, and how long it is. Strings are copied in vectors, without regard to their length as long as
 * there is room; the next string overwrites what is too much.
 */
#include "native.h"

#include "lzw.h"
#include "packbits.h"
#include <stdlib.h>
#include <string.h>

enum { CLEAR = 256, END = 257, FIRST = 258, MOST = 4096, LEAST_BITS = 9, MOST_BITS = 12, WORD = 8, IRREGULAR = -1 };
enum { COPIED = 16 };

typedef struct { uint32_t at, length; } String;

struct LzwTable {
    uint8_t bytes[CLEAR + COPIED]; /* the strings of one byte */
    String strings[MOST];          /* in the decoded bytes, from FIRST on */
};

/* The first bit of a code is the highest of its byte. Compilers make one load of the eight. */
static inline uint32_t code_at(const uint8_t *data, int64_t bit, int width)
{
    const uint8_t *p = data + (bit >> 3);
    uint64_t word = (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 | (uint64_t)p[3] << 32
                  | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 | (uint64_t)p[6] << 8 | (uint64_t)p[7];
    return (uint32_t)((word << (bit & 7)) >> (64 - width));
}

/* The same near the end of the data. */
static uint32_t last_code_at(const uint8_t *data, int64_t length, int64_t bit, int width)
{
    uint8_t end[WORD] = {0};
    int64_t left = length - (bit >> 3);
    memcpy(end, data + (bit >> 3), (size_t)(left < WORD ? left : WORD));
    return code_at(end, bit & 7, width);
}

LzwTable *new_lzw_table(void)
{
    LzwTable *table = malloc(sizeof *table);
    for (int i = 0; table != NULL && i < CLEAR; i++) {
        table->bytes[i] = (uint8_t)i;
        table->strings[i] = (String){0, 1};
    }
    return table;
}

int64_t decode_lzw(const uint8_t *data, int64_t length, uint8_t *out, int64_t room, LzwTable *table)
{
    String *strings = table->strings, last = {0, 0}; /* no string before: the first after CLEAR */
    int64_t bit = 0, bits = length * 8, filled = 0;
    int width = LEAST_BITS;
    uint32_t next = FIRST;
    if (bits < LEAST_BITS || last_code_at(data, length, 0, LEAST_BITS) != CLEAR)
        return IRREGULAR;
    while (filled < room) {
        /* while whole words can be read and whole vectors be written, and all codes are of this width */
        uint32_t limit = last.length ? (1u << width) - 1 : 0;
        while (next < limit && bit <= bits - 8 * WORD && filled <= room - COPIED) {
            uint32_t code = code_at(data, bit, width);
            if (code >= next || (code | 1) == END)
                break;
            String string = strings[code];
            const uint8_t *from = code < CLEAR ? table->bytes + code : out + string.at;
            /* it ends before the place where it goes: nothing overwrites what is still to be read */
            memcpy(out + filled, from, COPIED);
            if (string.length > COPIED) {
                if (string.length > room - COPIED - filled)
                    break;
                for (uint32_t i = COPIED; i < string.length; i += COPIED)
                    memcpy(out + filled + i, from + i, COPIED);
            }
            strings[next].at = last.at;
            strings[next].length = last.length + 1;
            next++;
            last.at = (uint32_t)filled;
            last.length = string.length;
            filled += string.length;
            bit += width;
        }
        if (filled == room)
            break;
        /* one code of any kind */
        if (next + 1 == 1u << width && width < MOST_BITS)
            width++;
        if (bit + width > bits)
            return IRREGULAR;
        uint32_t code = last_code_at(data, length, bit, width);
        bit += width;
        if (code == CLEAR) {
            width = LEAST_BITS, next = FIRST, last.length = 0;
            continue;
        }
        if (code == END)
            return filled;
        if (code > next || next >= MOST || (last.length == 0 && code >= CLEAR))
            return IRREGULAR;
        if (last.length) {
            strings[next].at = last.at;
            strings[next].length = last.length + 1;
            next++;
        }
        String string = strings[code];
        if (string.length > room - filled)
            return IRREGULAR;
        /* byte by byte: of a string that has just been added, the last byte is the first that it writes */
        const uint8_t *from = code < CLEAR ? table->bytes + code : out + string.at;
        for (uint32_t i = 0; i < string.length; i++)
            out[filled + i] = from[i];
        last.at = (uint32_t)filled, last.length = string.length;
        filled += string.length;
    }
    return filled;
}

int64_t unpack(Packed *packed, uint8_t *out, int64_t enough, int64_t room)
{
    const uint8_t *data = packed->data;
    int64_t length = packed->length, at = packed->at, filled = 0;
    while (filled < enough && at < length) {
        int code = data[at++];
        int64_t size = code < 128 ? code + 1 : 257 - code, stored = code < 128 ? size : 1;
        if (code == 128)
            continue;
        if (size > room - filled || stored > length - at)
            return IRREGULAR;
        if (code < 128)
            memcpy(out + filled, data + at, (size_t)size);
        else
            memset(out + filled, data[at], (size_t)size);
        at += stored, filled += size;
    }
    packed->at = at;
    return filled;
}

/* The same for PackBits, whose data end without a mark. */
static int64_t decode_packbits(const uint8_t *data, int64_t length, uint8_t *out, int64_t room)
{
    Packed packed = {data, length, 0};
    return unpack(&packed, out, room, room);
}

static PyObject *decode(PyObject *args, int is_lzw)
{
    PyObject *source, *target;
    if (!PyArg_ParseTuple(args, "OO", &source, &target))
        return NULL;
    Py_buffer from, to;
    if (PyObject_GetBuffer(source, &from, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(target, &to, PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&from);
        return NULL;
    }
    int64_t found = IRREGULAR;
    LzwTable *table = is_lzw && to.len <= UINT32_MAX ? new_lzw_table() : NULL;
    if (!is_lzw || table != NULL) {
        Py_BEGIN_ALLOW_THREADS
        found = is_lzw ? decode_lzw(from.buf, from.len, to.buf, to.len, table)
                       : decode_packbits(from.buf, from.len, to.buf, to.len);
        Py_END_ALLOW_THREADS
    }
    free(table);
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return PyLong_FromLongLong(found);
}

PyObject *lzw_bytes(PyObject *module, PyObject *args) { return decode(args, 1); }
PyObject *packbits_bytes(PyObject *module, PyObject *args) { return decode(args, 0); }
