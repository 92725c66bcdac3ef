/* One JPEG 2000 codestream decoded by OpenJPEG 2.5 into given memory, without the GIL.
 *
 * The library is the one that imagecodecs is linked with: `codecs/jpeg2000/openjpeg_library.py` passes the addresses of
 * its functions, after it has checked version and structures, which are declared there, too. Compared with imagecodecs'
 * binding, samples go from OpenJPEG's memory to where they belong in one pass, and OpenJPEG does not format messages
 * that nobody reads, two per tile. Whatever fails is left to that binding, which words the errors.
 */
#include "native.h"

#include "packets.h"

#include <string.h>

typedef struct {
    uint32_t dx, dy, w, h, x0, y0, prec, bpp, sgnd, resno_decoded, factor;
    int32_t *data;
    uint16_t alpha;
} Component; /* opj_image_comp_t */

typedef struct {
    uint32_t x0, y0, x1, y1, numcomps;
    int color_space;
    Component *comps;
    void *icc_profile_buf;
    uint32_t icc_profile_len;
} Image; /* opj_image_t */

typedef size_t (*Read)(void *, size_t, void *);
typedef int64_t (*Skip)(int64_t, void *);
typedef int (*Seek)(int64_t, void *);

/* In the order of `DIRECT` in openjpeg_library.py. */
typedef struct {
    void *(*create_decompress)(int);
    void (*set_default_decoder_parameters)(void *);
    int (*setup_decoder)(void *, void *);
    int (*codec_set_threads)(void *, int);
    int (*read_header)(void *, void *, Image **);
    int (*set_decoded_resolution_factor)(void *, uint32_t);
    int (*decode)(void *, void *, Image *);
    int (*end_decompress)(void *, void *);
    void (*destroy_codec)(void *);
    void (*image_destroy)(Image *);
    void *(*stream_create)(size_t, int);
    void (*stream_destroy)(void *);
    void (*stream_set_read_function)(void *, Read);
    void (*stream_set_skip_function)(void *, Skip);
    void (*stream_set_seek_function)(void *, Seek);
    void (*stream_set_user_data)(void *, void *, void *);
    void (*stream_set_user_data_length)(void *, uint64_t);
    int (*set_info_handler)(void *, void *, void *);
    int (*set_warning_handler)(void *, void *, void *);
    int (*set_error_handler)(void *, void *, void *);
} Library;

enum { J2K = 0, PARAMETERS = 16384, STREAM_BUFFER = 1 << 16 };

typedef struct { const uint8_t *data; int64_t length, position; } Memory;

static size_t memory_read(void *buffer, size_t length, void *user)
{
    Memory *memory = user;
    size_t left = (size_t)(memory->length - memory->position);
    if (left == 0)
        return (size_t)-1;
    if (length > left)
        length = left;
    memcpy(buffer, memory->data + memory->position, length);
    memory->position += (int64_t)length;
    return length;
}

static int64_t clipped(const Memory *memory, int64_t position)
{
    return position < 0 ? 0 : position > memory->length ? memory->length : position;
}

static int64_t memory_skip(int64_t length, void *user)
{
    Memory *memory = user;
    int64_t before = memory->position;
    /* `length` is a number of the file: it must not overflow */
    memory->position = length > memory->length ? memory->length : clipped(memory, before + length);
    return memory->position - before;
}

static int memory_seek(int64_t position, void *user)
{
    Memory *memory = user;
    memory->position = clipped(memory, position);
    return memory->position == position;
}

/* What the stream must decode to, and where: `strides` in bytes along band, y and x. */
typedef struct {
    uint8_t *to;
    int64_t bands, height, width, strides[3];
    int size, level, threads, depth, is_signed;
} Target;

/* OpenJPEG has clipped samples to their depth, so the lowest bytes are the value. */
#define DEFINE(NAME, TO)                                                                                               \
    static void NAME(const int32_t *from, uint8_t *to, int64_t count, int64_t stride)                                  \
    {                                                                                                                  \
        if (stride == sizeof(TO)) {                                                                                    \
            TO *next = (TO *)to;                                                                                       \
            for (int64_t i = 0; i < count; i++)                                                                        \
                next[i] = (TO)from[i];                                                                                 \
        } else                                                                                                         \
            for (int64_t i = 0; i < count; i++)                                                                        \
                *(TO *)(to + i * stride) = (TO)from[i];                                                                \
    }

DEFINE(copy_1, uint8_t)
DEFINE(copy_2, uint16_t)
DEFINE(copy_4, uint32_t)

static void copy_samples(const Component *component, const Target *target, int64_t band)
{
    for (int64_t y = 0; y < target->height; y++) {
        const int32_t *from = component->data + y * target->width;
        uint8_t *to = target->to + band * target->strides[0] + y * target->strides[1];
        if (target->size == 1)
            copy_1(from, to, target->width, target->strides[2]);
        else if (target->size == 2)
            copy_2(from, to, target->width, target->strides[2]);
        else
            copy_4(from, to, target->width, target->strides[2]);
    }
}

/* Return whether the components are those that the caller expects. */
static int is_alike(const Image *image, const Target *target, int is_decoded)
{
    if (image->numcomps != (uint64_t)target->bands || image->comps == NULL)
        return 0;
    for (uint32_t i = 0; i < image->numcomps; i++) {
        const Component *c = image->comps + i;
        if (c->dx != 1 || c->dy != 1 || c->prec != (uint32_t)target->depth || (c->sgnd != 0) != target->is_signed)
            return 0;
        if (is_decoded && (c->data == NULL || c->w != (uint64_t)target->width || c->h != (uint64_t)target->height))
            return 0;
    }
    return 1;
}

/* Return 1 if the stream decodes to what is expected, else 0. */
static int decode(const Library *opj, Memory *memory, const Target *target)
{
    Image *image = NULL;
    void *codec = opj->create_decompress(J2K), *stream = opj->stream_create(STREAM_BUFFER, 1);
    int is_good = codec != NULL && stream != NULL;
    if (is_good) {
        char parameters[PARAMETERS];
        opj->stream_set_read_function(stream, memory_read);
        opj->stream_set_skip_function(stream, memory_skip);
        opj->stream_set_seek_function(stream, memory_seek);
        opj->stream_set_user_data(stream, memory, NULL);
        opj->stream_set_user_data_length(stream, (uint64_t)memory->length);
        opj->set_info_handler(codec, NULL, NULL);
        opj->set_warning_handler(codec, NULL, NULL);
        opj->set_error_handler(codec, NULL, NULL);
        opj->set_default_decoder_parameters(parameters);
        is_good = opj->setup_decoder(codec, parameters)
            && (target->threads < 2 || opj->codec_set_threads(codec, target->threads))
            && opj->read_header(stream, codec, &image) && image != NULL && is_alike(image, target, 0)
            && opj->set_decoded_resolution_factor(codec, (uint32_t)target->level)
            && opj->decode(codec, stream, image) && opj->end_decompress(codec, stream) && is_alike(image, target, 1);
    }
    for (int64_t band = 0; is_good && band < target->bands; band++)
        copy_samples(image->comps + band, target, band);
    if (image != NULL)
        opj->image_destroy(image);
    if (stream != NULL)
        opj->stream_destroy(stream);
    if (codec != NULL)
        opj->destroy_codec(codec);
    return is_good;
}

/* Return whether every sample of an array is where the processor can write it as a whole. */
static int is_aligned(const Py_buffer *out, int size)
{
    return (uintptr_t)out->buf % (uintptr_t)size == 0 && out->strides[0] % size == 0 && out->strides[1] % size == 0
        && out->strides[2] % size == 0;
}

/* Return 0 if the stream does not decode to what is expected, 1 if it does, and 2 if `place` is given, and its packets
 * are exactly there. */
PyObject *openjpeg_decode(PyObject *module, PyObject *args)
{
    PyObject *functions, *source, *array;
    const char *parameters = NULL, *place = NULL;
    Py_ssize_t parameters_size = 0, place_size = 0;
    Target target;
    if (!PyArg_ParseTuple(args, "OOOiiip|y#y#", &functions, &source, &array, &target.level, &target.threads,
                          &target.depth, &target.is_signed, &parameters, &parameters_size, &place, &place_size))
        return NULL;
    Py_buffer table, data, out;
    if (PyObject_GetBuffer(functions, &table, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(source, &data, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&table);
        return NULL;
    }
    if (PyObject_GetBuffer(array, &out, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&table);
        PyBuffer_Release(&data);
        return NULL;
    }
    target.size = target.depth <= 8 ? 1 : target.depth <= 16 ? 2 : 4;
    int answer = 0, is_possible = table.len == (Py_ssize_t)sizeof(Library)
        && out.ndim == 3 && out.itemsize == target.size && target.depth >= 1 && target.depth <= 32
        && is_aligned(&out, target.size) && target.level >= 0 && target.level <= 32;
    if (is_possible) {
        Library opj;
        memcpy(&opj, table.buf, sizeof opj);
        target.to = out.buf;
        target.bands = out.shape[0], target.height = out.shape[1], target.width = out.shape[2];
        for (int i = 0; i < 3; i++)
            target.strides[i] = out.strides[i];
        Memory memory = {data.buf, data.len, 0};
        Py_BEGIN_ALLOW_THREADS
        answer = decode(&opj, &memory, &target);
        if (answer && place_size == sizeof(int64_t[PER_TILE])) {
            int64_t tile[PER_TILE];
            memcpy(tile, place, sizeof tile);
            answer += is_exact_tile(parameters, parameters_size, tile, data.buf, data.len);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&table);
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    if (!is_possible) {
        PyErr_SetString(PyExc_ValueError, "these functions, this array or this depth cannot be used");
        return NULL;
    }
    return PyLong_FromLong(answer);
}
