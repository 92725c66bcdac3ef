/* Many chunks at once: decompressed, and their rows placed in an array, without a step in Python for each.
 *
 * What surrounds the decoding of one chunk in Python takes about 20 microseconds, as long as decoding a small tile, and
 * threads wait for each other there. Here a thread decodes a whole run of chunks by itself.
 */
#include "native.h"

#include "fax.h"
#include "jpeg_pictures.h"
#include "rows.h"
#include "streams.h"
#include <stdlib.h>
#include <string.h>

enum { OUT, DATA, OFFSETS, LENGTHS, STARTS, EXTENTS, DONE, SCRATCH, FUNCTIONS, OPTIONS, BUFFERS };

typedef struct {
    Py_buffer buffers[BUFFERS];
    Placing placing;
    Stream stream;
    JpegPictures pictures;
    int64_t nbytes;                  /* of a decoded chunk */
    int64_t row_stride, band_stride; /* of the array */
    uint8_t *unpacked;               /* `block` rows, of what is decoded row by row */
    int64_t block;
} Work;

/* Return the place of a chunk in the array: where its first sample goes, and how many rows and columns; 0 if that is not
 * all inside. */
static int find_place(const Work *work, int64_t i, Py_buffer *part)
{
    const Layout *layout = &work->placing.layout;
    int64_t start = ((const int64_t *)work->buffers[STARTS].buf)[i];
    const int64_t *extent = (const int64_t *)work->buffers[EXTENTS].buf + 2 * i;
    if (extent[0] < 1 || extent[1] < 1 || extent[0] > layout->rows || extent[1] > layout->columns || start < 0
        || start > work->buffers[OUT].len)
        return 0;
    int64_t last = start + (layout->bands - 1) * work->band_stride + (extent[0] - 1) * work->row_stride
                 + extent[1] * layout->size;
    if (last > work->buffers[OUT].len)
        return 0;
    part->buf = (uint8_t *)work->buffers[OUT].buf + start;
    part->shape[1] = extent[0];
    part->shape[2] = extent[1];
    return 1;
}

static int take_chunk(Work *work, const uint8_t *data, size_t length, const Py_buffer *part)
{
    const Layout *layout = &work->placing.layout;
    uint8_t *scratch = work->buffers[SCRATCH].buf;
    switch (work->stream.kind) {
    case STREAM_NONE:
        if ((int64_t)length != work->nbytes)
            return 0;
        place(data, &work->placing);
        return 1;
    case STREAM_PACKBITS: {
        Packed packed = {data, (int64_t)length, 0};
        return unpack_rows(&packed, &work->placing, work->unpacked, work->block);
    }
    case STREAM_JPEG: return decode_jpeg(&work->pictures, data, length, &work->placing, work->unpacked, work->block);
    /* these may write one byte more than the chunk has */
    case STREAM_XZ: break;
    default:
        if (is_plain(layout) && layout->predictor == 1 && part->shape[1] == layout->rows
            && work->row_stride == row_bytes(layout) && part->shape[2] == layout->columns)
            return decode_stream(&work->stream, data, length, part->buf, (size_t)work->nbytes);
    }
    if (!decode_stream(&work->stream, data, length, scratch, (size_t)work->nbytes))
        return 0;
    place(scratch, &work->placing);
    return 1;
}

static void take_chunks(Work *work)
{
    int64_t count = work->buffers[DONE].len;
    const uint64_t *offsets = work->buffers[OFFSETS].buf, *lengths = work->buffers[LENGTHS].buf;
    uint64_t size = (uint64_t)work->buffers[DATA].len;
    uint8_t *done = work->buffers[DONE].buf;
    Py_ssize_t shape[3] = {work->placing.layout.bands, 0, 0};
    Py_ssize_t strides[3] = {work->band_stride, work->row_stride, work->placing.layout.size};
    Py_buffer part = {.ndim = 3, .itemsize = work->placing.layout.size, .shape = shape, .strides = strides};
    work->placing.target = &part;
    work->placing.band_stride = work->band_stride;
    for (int64_t i = 0; i < count; i++) {
        done[i] = 0;
        if (lengths[i] == 0 || offsets[i] > size || lengths[i] > size - offsets[i] || !find_place(work, i, &part))
            continue;
        done[i] = (uint8_t)take_chunk(work, (const uint8_t *)work->buffers[DATA].buf + offsets[i], (size_t)lengths[i],
                                      &part);
    }
}

/* Options are the type of samples of LERC, the order of bits and the tables of facsimile, or four colour spaces and the
 * tables of JPEG. */
static int read_options(Work *work)
{
    const Py_buffer *options = &work->buffers[OPTIONS];
    int is_fax = work->stream.kind == STREAM_FAX;
    if (work->stream.kind == STREAM_LERC || is_fax) {
        int32_t number;
        if (options->len != (Py_ssize_t)(sizeof number + (is_fax ? fax_tables_bytes : 0)))
            return 0;
        memcpy(&number, options->buf, sizeof number);
        work->stream.number = number;
        work->stream.tables = (const uint16_t *)((const uint8_t *)options->buf + sizeof number);
        return !is_fax || (work->placing.layout.size == 1 && work->placing.layout.bands == 1);
    }
     if (work->stream.kind == STREAM_JPEG) {
        JpegPictures *pictures = &work->pictures;
        size_t colors = sizeof pictures->colors;
        if (options->len < (Py_ssize_t)colors || work->placing.layout.size != 1)
            return 0;
        memcpy(pictures->colors, options->buf, colors);
        pictures->functions = work->stream.functions;
        pictures->tables_length = (size_t)options->len - colors;
        pictures->tables = pictures->tables_length ? (const uint8_t *)options->buf + colors : NULL;
    }
    return 1;
}

/* Check what is the same for all chunks, and get memory; return 0 if they are not for this code. */
static int begin_work(Work *work)
{
    Layout *layout = &work->placing.layout;
    Py_buffer *buffers = work->buffers;
    int64_t count = buffers[DONE].len;
    work->nbytes = whole_bytes(layout);
    if (work->nbytes < 0 || work->row_stride < layout->columns || work->band_stride < 0
        || work->row_stride > buffers[OUT].len || work->band_stride > buffers[OUT].len
        || buffers[OFFSETS].len != count * 8 || buffers[LENGTHS].len != count * 8 || buffers[STARTS].len != count * 8
        || buffers[EXTENTS].len != count * 16 || work->stream.kind < 0 || work->stream.kind >= STREAM_KINDS
        || buffers[FUNCTIONS].len != function_count(work->stream.kind) * (Py_ssize_t)sizeof(uintptr_t))
        return 0;
    memcpy(work->stream.functions, buffers[FUNCTIONS].buf, (size_t)buffers[FUNCTIONS].len);
    /* strides that cannot overflow in `find_place` */
    if (layout->bands > PY_SSIZE_T_MAX / 4 / (work->band_stride + 1)
        || layout->rows > PY_SSIZE_T_MAX / 4 / (work->row_stride + 1))
        return 0;
    Py_ssize_t shape[3] = {layout->bands, layout->rows, layout->columns};
    Py_ssize_t strides[3] = {work->band_stride, work->row_stride, layout->size};
    Py_buffer whole = {.ndim = 3, .itemsize = layout->size, .shape = shape, .strides = strides};
    if (!prepare_rows(&work->placing, &whole, work->nbytes))
        return 0;
    if (!read_options(work))
        return 0;
    if (work->stream.kind == STREAM_PACKBITS || work->stream.kind == STREAM_JPEG) {
        work->block = block_rows(layout);
        work->unpacked = malloc((size_t)(work->block * row_bytes(layout) + LONGEST_RUN));
        return work->unpacked != NULL;
    }
    if (work->stream.kind != STREAM_NONE && buffers[SCRATCH].len <= work->nbytes)
        return 0;
    work->stream.rows = layout->rows, work->stream.columns = layout->columns, work->stream.bands = layout->bands;
    return begin_stream(&work->stream);
}

PyObject *place_chunks(PyObject *module, PyObject *args)
{
    static const int flags[BUFFERS] = {
        [OUT] = PyBUF_WRITABLE, [DONE] = PyBUF_WRITABLE, [SCRATCH] = PyBUF_WRITABLE,
    };
    PyObject *objects[BUFFERS];
    Work work = {.placing = {.layout = {.best = 2}}};
    Layout *layout = &work.placing.layout;
    long long rows, columns, bands, row_stride, band_stride;
    if (!PyArg_ParseTuple(args, "iOOOOOOOOOO(LLL)(LL)iip|i", &work.stream.kind, &objects[FUNCTIONS],
                          &objects[OPTIONS], &objects[DATA], &objects[OFFSETS], &objects[LENGTHS], &objects[OUT],
                          &objects[STARTS], &objects[EXTENTS], &objects[DONE], &objects[SCRATCH], &rows, &columns,
                          &bands, &row_stride, &band_stride, &layout->size, &layout->predictor, &layout->is_swapped,
                          &layout->best))
        return NULL;
    layout->rows = rows, layout->columns = columns, layout->bands = bands;
    work.row_stride = row_stride, work.band_stride = band_stride;
    int held = 0;
    while (held < BUFFERS && PyObject_GetBuffer(objects[held], &work.buffers[held], flags[held]) == 0)
        held++;
    int is_done = 0;
    if (held == BUFFERS) {
        Py_BEGIN_ALLOW_THREADS
        is_done = begin_work(&work);
        if (is_done)
            take_chunks(&work);
        end_stream(&work.stream);
        Py_END_ALLOW_THREADS
        free(work.unpacked);
        free(work.placing.memory);
    }
    while (held-- > 0)
        PyBuffer_Release(&work.buffers[held]);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(is_done);
}
