/* The tile-parts of a JPEG 2000 codestream, found by following SOT markers (ITU-T T.800 A.4.2), if each tile has exactly
 * one. Whatever else there is, is left to the Python code, which also words the errors.
 *
 * `data` begins with the first SOT. `out` takes a tile number, a position in `data` and a length for each tile-part, and
 * has room for as many as there are tiles.
 */
#include "native.h"

#include <stdlib.h>

enum { SOT_BYTES = 12, SMALLEST = SOT_BYTES + 2 }; /* of a tile-part: SOT and SOD */

/* Return the number of tile-parts up to the first marker that is not SOT; -1 if something is unusual. `seen` has a byte
 * per tile, all 0. */
static int64_t follow(const uint8_t *data, int64_t size, int64_t tiles, int64_t *out, uint8_t *seen)
{
    int64_t count = 0, position = 0;
    while (size - position >= SOT_BYTES) {
        const uint8_t *sot = data + position;
        if (sot[0] != 0xFF || sot[1] != 0x90)
            break;
        int64_t tile = sot[4] << 8 | sot[5];
        int64_t length = (int64_t)sot[6] << 24 | sot[7] << 16 | sot[8] << 8 | sot[9];
        /* Lsot, TPsot, TNsot; a length of 0 reaches to EOC */
        if (sot[2] != 0 || sot[3] != 10 || sot[10] != 0 || sot[11] > 1 || tile >= tiles || seen[tile]
            || length < SMALLEST || length > size - position)
            return -1;
        seen[tile] = 1;
        out[3 * count] = tile, out[3 * count + 1] = position, out[3 * count + 2] = length;
        count++;
        position += length;
    }
    return count;
}

PyObject *tile_parts(PyObject *module, PyObject *args)
{
    PyObject *source, *target;
    if (!PyArg_ParseTuple(args, "OO", &source, &target))
        return NULL;
    Py_buffer from, to;
    if (PyObject_GetBuffer(source, &from, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(target, &to, PyBUF_ND | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&from);
        return NULL;
    }
    int64_t tiles = to.len / (3 * (int64_t)sizeof(int64_t)), count = -1;
    uint8_t *seen = to.itemsize == sizeof(int64_t) && tiles > 0 ? calloc((size_t)tiles, 1) : NULL;
    if (seen != NULL) {
        Py_BEGIN_ALLOW_THREADS
        count = follow(from.buf, from.len, tiles, to.buf, seen);
        Py_END_ALLOW_THREADS
        free(seen);
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return PyLong_FromLongLong(count);
}
