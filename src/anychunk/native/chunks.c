/* Many chunks at once: decompressed, and their samples placed in an array, without a step in Python for each.
 *
 * What surrounds the decoding of one chunk in Python takes about 20 microseconds, as long as decoding a small tile, and
 * threads wait for each other there. Here a thread decodes a whole run of chunks by itself. A box of each chunk is placed;
 * the chunks are parts of one buffer, or a file each.
 */
#include "native.h"

#include "fax.h"
#include "files.h"
#include "jpeg_pictures.h"
#include "rows.h"
#include "streams.h"
#include <stdlib.h>
#include <string.h>

enum { OUT, DATA, OFFSETS, LENGTHS, STARTS, BOXES, SHAPES, DONE, SCRATCH, FUNCTIONS, OPTIONS, SHAPE, STRIDES, BUFFERS };
enum { LEFT, PLACED, ABSENT }; /* what `done` says of a chunk */
enum { MOST_DIMENSIONS = 12, N5_FIXED = 4 };

/* Axes are in the order in which samples are stored: …, rows, columns, bands. */
typedef struct {
    Py_buffer buffers[BUFFERS];
    Placing placing;
    Stream stream;
    JpegPictures pictures;
    Files files;
    int axes;
    int head; /* of how many axes the header of an N5 block has sizes; 0: there is none */
    const int64_t *shape, *strides; /* of a chunk, and of the array in bytes */
    int64_t nbytes;                 /* of a decoded chunk */
    uint8_t *unpacked;              /* `block` rows, of what is decoded row by row */
    int64_t block;
} Work;

static int64_t bytes_of(const Work *work, const int64_t *shape)
{
    int64_t nbytes = work->placing.layout.size;
    for (int i = 0; i < work->axes; i++)
        nbytes *= shape[i];
    return nbytes;
}

/* Return whether a box is in a chunk of this shape, and its place in the array. */
static int is_inside(const Work *work, const int64_t *shape, const int64_t *box, int64_t start)
{
    int64_t last = start;
    if (start < 0 || start > work->buffers[OUT].len)
        return 0;
    for (int i = 0; i < work->axes; i++) {
        int64_t first = box[2 * i], extent = box[2 * i + 1];
        if (shape[i] < 1 || shape[i] > work->shape[i] || first < 0 || extent < 1 || first > shape[i]
            || extent > shape[i] - first)
            return 0;
        last += (extent - 1) * work->strides[i];
    }
    return last + work->placing.layout.size <= work->buffers[OUT].len;
}

/* Read the header of an N5 block: two numbers and a size for each axis, the fastest first, all big-endian. */
static int read_head(const Work *work, const uint8_t **data, size_t *length, int64_t *shape)
{
    size_t size = N5_FIXED + 4 * (size_t)work->head;
    const uint8_t *head = *data;
    if (*length < size || head[0] || head[1] || ((head[2] << 8) | head[3]) != work->head)
        return 0;
    memcpy(shape, work->shape, (size_t)work->axes * sizeof *shape);
    for (int i = 0; i < work->head; i++) {
        const uint8_t *number = head + N5_FIXED + 4 * i;
        shape[work->axes - 2 - i] = ((int64_t)number[0] << 24) | (number[1] << 16) | (number[2] << 8) | number[3];
    }
    *data += size, *length -= size;
    return 1;
}

/* Return whether a box is all of a chunk, and lies in the array as in the chunk. */
static int is_whole(const Work *work, const int64_t *shape, const int64_t *box)
{
    int64_t stride = work->placing.layout.size;
    if (!is_plain(&work->placing.layout) || work->placing.layout.predictor != 1)
        return 0;
    for (int i = work->axes - 1; i >= 0; i--) {
        if (box[2 * i + 1] != shape[i] || (shape[i] > 1 && work->strides[i] != stride))
            return 0;
        stride *= shape[i];
    }
    return 1;
}

/* Place a box of a decoded chunk, plane by plane. */
static void place_box(Work *work, const uint8_t *data, const int64_t *shape, const int64_t *box, uint8_t *to)
{
    int lead = work->axes - 3;
    Py_buffer part = *work->placing.target;
    int64_t at[MOST_DIMENSIONS] = {0}, row = row_bytes(&work->placing.layout);
    Placing placing = work->placing;
    placing.target = &part;
    for (;;) {
        int64_t plane = 0;
        part.buf = to;
        for (int i = 0; i < lead; i++) {
            plane = plane * shape[i] + box[2 * i] + at[i];
            part.buf = (uint8_t *)part.buf + at[i] * work->strides[i];
        }
        place(data + (plane * shape[lead] + box[2 * lead]) * row, &placing);
        int axis = lead - 1;
        while (axis >= 0 && ++at[axis] == box[2 * axis + 1])
            at[axis--] = 0;
        if (axis < 0)
            return;
    }
}

static int take_chunk(Work *work, const uint8_t *data, size_t length, int64_t i)
{
    Layout *layout = &work->placing.layout;
    const int64_t *box = (const int64_t *)work->buffers[BOXES].buf + 2 * work->axes * i, *shape = work->shape;
    int64_t start = ((const int64_t *)work->buffers[STARTS].buf)[i], own[MOST_DIMENSIONS];
    int rows = work->axes - 3;
    if (work->buffers[SHAPES].len)
        shape = (const int64_t *)work->buffers[SHAPES].buf + work->axes * i;
    if (work->head) {
        if (!read_head(work, &data, &length, own))
            return 0;
        shape = own;
    }
    if (!is_inside(work, shape, box, start))
        return 0;
    size_t nbytes = (size_t)bytes_of(work, shape);
    uint8_t *to = (uint8_t *)work->buffers[OUT].buf + start, *scratch = work->buffers[SCRATCH].buf;
    Py_ssize_t extents[3] = {box[2 * rows + 5], box[2 * rows + 1], box[2 * rows + 3]};
    Py_ssize_t strides[3] = {work->strides[rows + 2], work->strides[rows], layout->size};
    Py_buffer part = {.buf = to, .ndim = 3, .itemsize = layout->size, .shape = extents, .strides = strides};
    work->placing.target = &part;
    work->placing.column0 = box[2 * rows + 2], work->placing.band0 = box[2 * rows + 4];
    layout->rows = shape[rows], layout->columns = shape[rows + 1];
    int is_direct = is_whole(work, shape, box);
    switch (work->stream.kind) {
    case STREAM_NONE:
        if (length != nbytes)
            return 0;
        if (is_direct)
            memcpy(to, data, nbytes);
        else
            place_box(work, data, shape, box, to);
        return 1;
    case STREAM_PACKBITS:
    case STREAM_JPEG:
        work->placing.row0 = box[2 * rows];
        if (work->stream.kind == STREAM_PACKBITS) {
            Packed packed = {data, (int64_t)length, 0};
            return unpack_rows(&packed, &work->placing, work->unpacked, work->block);
        }
        return decode_jpeg(&work->pictures, data, length, &work->placing, work->unpacked, work->block);
    case STREAM_XZ: break; /* it may write one byte more than the chunk has */
    default:
        if (is_direct)
            return decode_stream(&work->stream, data, length, to, nbytes);
    }
    if (!decode_stream(&work->stream, data, length, scratch, nbytes))
        return 0;
    place_box(work, scratch, shape, box, to);
    return 1;
}

static void take_chunks(Work *work)
{
    int64_t count = work->buffers[DONE].len;
    const uint64_t *offsets = work->buffers[OFFSETS].buf;
    uint64_t *lengths = work->buffers[LENGTHS].buf, size = (uint64_t)work->buffers[DATA].len;
    uint8_t *done = work->buffers[DONE].buf;
    const uint8_t *data = work->buffers[DATA].buf, *found;
    work->placing.band_stride = work->strides[work->axes - 1];
    for (int64_t i = 0; i < count; i++) {
        done[i] = LEFT;
        if (work->files.folder < 0) {
            if (lengths[i] == 0 || offsets[i] > size || lengths[i] > size - offsets[i])
                continue;
            found = data + offsets[i];
        } else {
            size_t length = 0;
            if (offsets[i] >= size || memchr(data + offsets[i], 0, (size_t)(size - offsets[i])) == NULL)
                continue;
            int is_found = read_file(&work->files, (const char *)data + offsets[i], &length);
            lengths[i] = is_found == 1 ? length : 0;
            if (is_found < 0)
                done[i] = ABSENT;
            if (is_found != 1 || length == 0)
                continue;
            found = work->files.memory;
        }
        done[i] = take_chunk(work, found, (size_t)lengths[i], i) ? PLACED : LEFT;
    }
}

/* Options are the type of samples of LERC, the order of bits and the tables of facsimile, or four colour spaces and the
 * tables of JPEG. */
static int read_options(Work *work)
{
    const Py_buffer *options = &work->buffers[OPTIONS];
    int is_fax = work->stream.kind == STREAM_FAX;
    int is_strict = work->stream.kind == STREAM_DEFLATE || work->stream.kind == STREAM_GZIP;
    if (work->stream.kind == STREAM_LERC || is_fax || (is_strict && options->len)) {
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

/* Return whether the kind decodes only chunks that are one picture. */
static int is_picture(int kind)
{
    return kind == STREAM_PACKBITS || kind == STREAM_JPEG || kind == STREAM_LERC || kind == STREAM_WEBP
           || kind == STREAM_FAX;
}

/* Check what is the same for all chunks, and get memory; return 0 if they are not for this code. */
static int begin_work(Work *work)
{
    Layout *layout = &work->placing.layout;
    Py_buffer *buffers = work->buffers;
    int64_t count = buffers[DONE].len, planes = 1;
    work->axes = (int)(buffers[SHAPE].len / 8);
    work->shape = buffers[SHAPE].buf, work->strides = buffers[STRIDES].buf;
    if (work->axes < 3 || work->axes > MOST_DIMENSIONS || buffers[STRIDES].len != buffers[SHAPE].len
        || buffers[SHAPE].len % 8 || work->head < 0 || work->head > work->axes - 1)
        return 0;
    for (int i = 0; i < work->axes; i++) {
        /* strides that cannot overflow in `is_inside` */
        if (work->shape[i] < 1 || work->strides[i] < 0 || work->strides[i] > buffers[OUT].len
            || work->shape[i] > PY_SSIZE_T_MAX / 16 / (work->strides[i] + 1))
            return 0;
        if (i < work->axes - 3) {
            if (work->shape[i] > PY_SSIZE_T_MAX / planes)
                return 0;
            planes *= work->shape[i];
        }
    }
    layout->rows = work->shape[work->axes - 3], layout->columns = work->shape[work->axes - 2];
    layout->bands = work->shape[work->axes - 1];
    int64_t plane = whole_bytes(layout);
    if (plane < 0 || plane > PY_SSIZE_T_MAX / planes || work->strides[work->axes - 2] != layout->size
        || buffers[OFFSETS].len != count * 8 || buffers[LENGTHS].len != count * 8 || buffers[STARTS].len != count * 8
        || buffers[BOXES].len != count * 16 * work->axes
        || (buffers[SHAPES].len && buffers[SHAPES].len != count * 8 * work->axes) || work->stream.kind < 0
        || work->stream.kind >= STREAM_KINDS
        || buffers[FUNCTIONS].len != function_count(work->stream.kind) * (Py_ssize_t)sizeof(uintptr_t)
        || (is_picture(work->stream.kind) && (planes > 1 || work->head))
        || (is_picture(work->stream.kind) && work->stream.kind != STREAM_PACKBITS && buffers[SHAPES].len))
        return 0;
    work->nbytes = plane * planes;
    memcpy(work->stream.functions, buffers[FUNCTIONS].buf, (size_t)buffers[FUNCTIONS].len);
    work->placing.is_part = 1;
    if (!prepare_layout(&work->placing, plane) || !read_options(work))
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
    Work work = {.placing = {.layout = {.best = 2}}, .files = {.folder = -1}};
    Layout *layout = &work.placing.layout;
    long long most = 0;
    if (!PyArg_ParseTuple(args, "iOOOOOOOOOOOOOiipi|iiL", &work.stream.kind, &objects[FUNCTIONS], &objects[OPTIONS],
                          &objects[DATA], &objects[OFFSETS], &objects[LENGTHS], &objects[OUT], &objects[STARTS],
                          &objects[BOXES], &objects[SHAPES], &objects[DONE], &objects[SCRATCH], &objects[SHAPE],
                          &objects[STRIDES], &layout->size, &layout->predictor, &layout->is_swapped, &work.head,
                          &layout->best, &work.files.folder, &most))
        return NULL;
    work.files.most = most;
    int held = 0;
    while (held < BUFFERS) {
        int flag = flags[held] | (held == LENGTHS && work.files.folder >= 0 ? PyBUF_WRITABLE : 0);
        if (PyObject_GetBuffer(objects[held], &work.buffers[held], flag) < 0)
            break;
        held++;
    }
    int is_done = 0;
    if (held == BUFFERS) {
        Py_BEGIN_ALLOW_THREADS
        is_done = begin_work(&work);
        if (is_done)
            take_chunks(&work);
        end_stream(&work.stream);
        end_files(&work.files);
        Py_END_ALLOW_THREADS
        free(work.unpacked);
        free(work.placing.memory);
    }
    while (held-- > 0)
        PyBuffer_Release(&work.buffers[held]);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(is_done);
}
