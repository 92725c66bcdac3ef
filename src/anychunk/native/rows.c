/* Decompressed rows of a TIFF strip or tile to their place in an array: undo the prediction, swap bytes, take the bands
 * apart, leave out what lies beyond the edge of the image; all in one pass, row by row, while a row is in the
 * processor's cache.
 *
 * Predictor 2 (TIFF 6.0 section 14) stores each sample minus the one of the same band in the pixel before it, as
 * integers. Predictor 3 (Adobe Photoshop TIFF Technical Note 3) sorts the bytes of a row into planes, the most
 * significant first, and then stores each byte minus that of the pixel before it. Taking the bands apart first makes
 * both plain running sums of contiguous numbers, several of which are added at a time where there is SSE2.
 */
#include "native.h"

#include "bands.h"
#include "packbits.h"
#include "rows.h"
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#define HAS_SSE2 1
#include <emmintrin.h>
#endif

enum {
    BLOCK = 12 << 10, /* bytes of the rows that are taken apart at a time, in the cache of the first level */
    MOST_AXES = 8,
    LINE = 64,      /* of the cache, in bytes */
    NARROW = 512,   /* bytes of a row; wider ones the processor notices by itself */
    AHEAD = 3,     /* rows */
};

/* Running sums, of unsigned words that wrap; `from` and `to` may be the same. */
#define SUM_ONE_BY_ONE(word)                                                                                           \
    for (; i < count; i++) {                                                                                           \
        word value;                                                                                                    \
        memcpy(&value, from + i * sizeof value, sizeof value);                                                         \
        total = (word)(total + value);                                                                                 \
        memcpy(to + i * sizeof total, &total, sizeof total);                                                           \
    }

#ifdef HAS_SSE2
/* Sum the words of a vector by adding it to itself, shifted by 1, 2, 4 … words; then add the sum of all before it. */
#define SUM_VECTORS(word, add, first, spread)                                                                          \
    __m128i before = _mm_setzero_si128();                                                                              \
    for (; i + VECTOR / (int64_t)sizeof(word) <= count; i += VECTOR / sizeof(word)) {                                  \
        __m128i x = _mm_loadu_si128((const __m128i *)(from + i * sizeof(word)));                                       \
        first x = add(x, _mm_slli_si128(x, 8));                                                                        \
        _mm_storeu_si128((__m128i *)(to + i * sizeof(word)), add(x, before));                                          \
        before = add(before, spread(x));                                                                               \
    }                                                                                                                  \
    {                                                                                                                  \
        uint8_t last[VECTOR];                                                                                          \
        _mm_storeu_si128((__m128i *)last, before);                                                                     \
        memcpy(&total, last, sizeof total);                                                                            \
    }

static inline __m128i spread_64(__m128i x) { return _mm_shuffle_epi32(x, 0xEE); }
static inline __m128i spread_32(__m128i x) { return _mm_shuffle_epi32(x, 0xFF); }
static inline __m128i spread_16(__m128i x) { return spread_32(_mm_shufflehi_epi16(x, 0xFF)); }
static inline __m128i spread_8(__m128i x) { return spread_16(_mm_unpackhi_epi8(x, x)); }
#else
#define SUM_VECTORS(word, add, first, spread)
#endif

static void sum_8(const uint8_t *from, uint8_t *to, int64_t count)
{
    int64_t i = 0;
    uint8_t total = 0;
    SUM_VECTORS(uint8_t, _mm_add_epi8,
                x = _mm_add_epi8(x, _mm_slli_si128(x, 1)); x = _mm_add_epi8(x, _mm_slli_si128(x, 2));
                x = _mm_add_epi8(x, _mm_slli_si128(x, 4));, spread_8)
    SUM_ONE_BY_ONE(uint8_t)
}

static void sum_16(const uint8_t *from, uint8_t *to, int64_t count)
{
    int64_t i = 0;
    uint16_t total = 0;
    SUM_VECTORS(uint16_t, _mm_add_epi16, x = _mm_add_epi16(x, _mm_slli_si128(x, 2));
                x = _mm_add_epi16(x, _mm_slli_si128(x, 4));, spread_16)
    SUM_ONE_BY_ONE(uint16_t)
}

static void sum_32(const uint8_t *from, uint8_t *to, int64_t count)
{
    int64_t i = 0;
    uint32_t total = 0;
    SUM_VECTORS(uint32_t, _mm_add_epi32, x = _mm_add_epi32(x, _mm_slli_si128(x, 4));, spread_32)
    SUM_ONE_BY_ONE(uint32_t)
}

static void sum_64(const uint8_t *from, uint8_t *to, int64_t count)
{
    int64_t i = 0;
    uint64_t total = 0;
    SUM_VECTORS(uint64_t, _mm_add_epi64, , spread_64)
    SUM_ONE_BY_ONE(uint64_t)
}

static void sum_words(const uint8_t *from, uint8_t *to, int64_t count, int size)
{
    switch (size) {
    case 1: sum_8(from, to, count); break;
    case 2: sum_16(from, to, count); break;
    case 4: sum_32(from, to, count); break;
    default: sum_64(from, to, count); break;
    }
}

/* Join `size` planes of bytes, the most significant first, `pitch` bytes apart, to `count` little-endian words. */
static void join_planes(const uint8_t *planes, int64_t pitch, uint8_t *to, int64_t count, int size)
{
    int64_t i = 0;
#ifdef HAS_SSE2
#define PLANE(n) _mm_loadu_si128((const __m128i *)(planes + (size - 1 - (n)) * pitch + i))
#define STORE(n, x) _mm_storeu_si128((__m128i *)(to + i * size) + (n), x)
    if (size == 2) {
        for (; i + VECTOR <= count; i += VECTOR) {
            __m128i low = PLANE(0), high = PLANE(1);
            STORE(0, _mm_unpacklo_epi8(low, high));
            STORE(1, _mm_unpackhi_epi8(low, high));
        }
    } else if (size == 4) {
        for (; i + VECTOR <= count; i += VECTOR) {
            __m128i a = PLANE(0), b = PLANE(1), c = PLANE(2), d = PLANE(3);
            __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
            STORE(0, _mm_unpacklo_epi16(ab, cd));
            STORE(1, _mm_unpackhi_epi16(ab, cd));
            ab = _mm_unpackhi_epi8(a, b), cd = _mm_unpackhi_epi8(c, d);
            STORE(2, _mm_unpacklo_epi16(ab, cd));
            STORE(3, _mm_unpackhi_epi16(ab, cd));
        }
    }
#undef PLANE
#undef STORE
#endif
    for (; i < count; i++)
        for (int n = 0; n < size; n++)
            to[i * size + n] = planes[(size - 1 - n) * pitch + i];
}

/* Copy the samples of one band, which are `step` bytes apart. */
static void copy_band(const uint8_t *from, int64_t step, uint8_t *to, int64_t count, int size, int is_swapped)
{
    if (is_swapped) {
        for (int64_t i = 0; i < count; i++)
            for (int n = 0; n < size; n++)
                to[i * size + n] = from[i * step + size - 1 - n];
        return;
    }
    switch (size) { /* with constants, memcpy is a load and a store */
    case 1:
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i * step];
        break;
    case 2:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 2, from + i * step, 2);
        break;
    case 4:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 4, from + i * step, 4);
        break;
    default:
        for (int64_t i = 0; i < count; i++)
            memcpy(to + i * 8, from + i * step, 8);
    }
}

/* Copy words in the other byte order. */
static void swap_words(const uint8_t *from, uint8_t *to, int64_t count, int size)
{
    int64_t i = 0, length = count * size;
#ifdef HAS_SSE2
    for (; i + VECTOR <= length; i += VECTOR) {
        __m128i x = _mm_loadu_si128((const __m128i *)(from + i));
        x = _mm_or_si128(_mm_slli_epi16(x, 8), _mm_srli_epi16(x, 8));
        if (size == 4)
            x = _mm_shufflehi_epi16(_mm_shufflelo_epi16(x, 0xB1), 0xB1);
        else if (size == 8)
            x = _mm_shufflehi_epi16(_mm_shufflelo_epi16(x, 0x1B), 0x1B);
        _mm_storeu_si128((__m128i *)(to + i), x);
    }
#endif
    copy_band(from + i, size, to + i, (length - i) / size, size, 1);
}

/* Copy `pixels` of a row to rows of its bands, `pitch` bytes apart. */
static void take_apart(const uint8_t *from, uint8_t *to, int64_t pitch, int64_t pixels, int64_t bands, int size,
                       int is_swapped, const Masks *masks, int best)
{
    if (bands == 1 && !is_swapped) {
        memcpy(to, from, (size_t)(pixels * size));
    } else if (bands == 1) {
        swap_words(from, to, pixels, size);
    } else if (bands <= MOST_BANDS) {
        uint8_t *rows[MOST_BANDS];
        for (int k = 0; k < bands; k++)
            rows[k] = to + k * pitch;
        copy_row(from, rows, pixels, size, (int)bands, is_swapped, masks, best);
    } else {
        for (int64_t k = 0; k < bands; k++)
            copy_band(from + k * size, bands * size, to + k * pitch, pixels, size, is_swapped);
    }
}

/* Write one row of one band, taken apart, to its place: `columns` of it, from `first` on. */
static void finish_row(const Layout *layout, uint8_t *from, uint8_t *to, int64_t first, int64_t columns)
{
    if (layout->predictor == 3) {
        /* the planes follow each other, and the sum runs through all of them */
        sum_8(from, from, layout->columns * layout->size);
        join_planes(from + first, layout->columns, to, columns, layout->size);
    } else if (layout->predictor == 2 && first == 0) {
        sum_words(from, to, columns, layout->size);
    } else {
        if (layout->predictor == 2)
            sum_words(from, from, first + columns, layout->size);
        memcpy(to, from + first * layout->size, (size_t)(columns * layout->size));
    }
}

/* Ask for the memory of a row that is written soon: rows of a narrow tile are far apart in the array, and a processor that
 * waits for each of their cache lines in turn takes five times as long as copying does. */
static void expect_row(const uint8_t *row, int64_t band_stride, int64_t bands, int64_t length)
{
#if defined(__GNUC__) || defined(__clang__)
    for (int64_t k = 0; k < bands; k++)
        for (int64_t i = 0; i < length; i += LINE)
            __builtin_prefetch(row + k * band_stride + i, 1);
#endif
}

/* Place all rows. They are taken apart in `memory`, `block` rows at a time, and each band is written by itself: bands
 * that are a power of two apart, as they often are, would push each other out of the processor's cache. */
static void place_all(const uint8_t *data, const Placing *placing)
{
    const Layout *layout = &placing->layout;
    const Py_buffer *target = placing->target;
    int64_t rows = target->shape[target->ndim - 2], columns = target->shape[target->ndim - 1];
    int64_t row_stride = target->strides[target->ndim - 2], bands = layout->bands, block = placing->block;
    int64_t run = layout->columns * layout->size, first_column = placing->column0;
    int64_t some_bands = placing->is_part ? target->shape[0] : bands;
    int is_planes = layout->predictor == 3, is_swapped = layout->is_swapped && !is_planes;
    int size = is_planes ? 1 : layout->size;
    int64_t pixels = is_planes ? run : first_column + columns;
    Masks masks;
    if (bands <= MOST_BANDS)
        fill_masks(&masks, (int)bands, size, is_swapped);
    for (int64_t first = 0; first < rows; first += block) {
        int64_t last = first + block < rows ? first + block : rows;
        for (int64_t y = first; y < last; y++, data += run * bands)
            take_apart(data, placing->memory + (y - first) * run, block * run, pixels, bands, size, is_swapped, &masks,
                       layout->best);
        for (int64_t k = 0; k < some_bands; k++)
            for (int64_t y = first; y < last; y++)
                finish_row(layout, placing->memory + (k + placing->band0) * block * run + (y - first) * run,
                           (uint8_t *)target->buf + y * row_stride + k * placing->band_stride, first_column, columns);
    }
}

/* The same where bands are only to be taken apart: straight to their place. */
static void place_bands(const uint8_t *data, const Placing *placing)
{
    const Layout *layout = &placing->layout;
    const Py_buffer *target = placing->target;
    int64_t rows = target->shape[target->ndim - 2], columns = target->shape[target->ndim - 1];
    Masks masks;
    int64_t row_stride = target->strides[target->ndim - 2], length = columns * layout->size;
    int64_t bands = layout->bands, pixel = bands * layout->size;
    int64_t some_bands = placing->is_part ? target->shape[0] : bands;
    fill_masks(&masks, (int)bands, layout->size, layout->is_swapped);
    data += placing->column0 * pixel;
    for (int64_t y = 0; y < rows; y++, data += layout->columns * pixel) {
        uint8_t *to = (uint8_t *)target->buf + y * row_stride;
        if (length <= NARROW && y + AHEAD < rows)
            expect_row(to + AHEAD * row_stride, placing->band_stride, some_bands, length);
        if (some_bands == bands)
            take_apart(data, to, placing->band_stride, columns, bands, layout->size, layout->is_swapped, &masks,
                       layout->best);
        else
            for (int64_t k = 0; k < some_bands; k++)
                copy_band(data + (placing->band0 + k) * layout->size, pixel, to + k * placing->band_stride, columns,
                          layout->size, layout->is_swapped);
    }
}

/* The same where nothing is to be taken apart or joined. */
static void place_plain(const uint8_t *data, const Placing *placing)
{
    const Layout *layout = &placing->layout;
    const Py_buffer *target = placing->target;
    int64_t rows = target->shape[target->ndim - 2], columns = target->shape[target->ndim - 1];
    int64_t row_stride = target->strides[target->ndim - 2], length = columns * layout->size;
    int64_t before = placing->column0 * layout->size;
    for (int64_t y = 0; y < rows; y++, data += layout->columns * layout->size) {
        uint8_t *to = (uint8_t *)target->buf + y * row_stride;
        if (length <= NARROW && y + AHEAD < rows)
            expect_row(to + AHEAD * row_stride, 0, 1, length);
        if (layout->predictor != 2) {
            memcpy(to, data + before, (size_t)length);
        } else if (before == 0) {
            sum_words(data, to, columns, layout->size);
        } else {
            sum_words(data, placing->memory, placing->column0 + columns, layout->size);
            memcpy(to, placing->memory + before, (size_t)length);
        }
    }
}

/* Return whether the target takes such rows; find how far apart its bands are. Its axes are those of a chunk:
 * (…, rows, columns), and before them one of bands, and others of length 1. */
static int takes(const Py_buffer *target, const Layout *layout, int64_t *band_stride)
{
    int axes = target->ndim;
    if (axes < 2 || target->shape == NULL || target->strides == NULL || target->itemsize != layout->size
        || target->shape[axes - 1] > layout->columns || target->shape[axes - 2] > layout->rows
        || target->shape[axes - 1] < 1 || target->shape[axes - 2] < 1 || target->strides[axes - 1] != layout->size)
        return 0;
    int64_t bands = 1;
    *band_stride = 0;
    for (int i = 0; i < axes - 2; i++) {
        if (target->shape[i] == 1)
            continue;
        if (bands != 1)
            return 0;
        bands = target->shape[i];
        *band_stride = target->strides[i];
    }
    return bands == layout->bands;
}

static int is_layout(const Layout *layout, Py_ssize_t length)
{
    int size = layout->size;
    if ((size != 1 && size != 2 && size != 4 && size != 8) || layout->predictor < 1 || layout->predictor > 3
        || (layout->predictor == 3 && size == 1))
        return 0;
    /* a length in memory: none of the products below it overflows */
    if (layout->rows < 1 || layout->columns < 1 || layout->bands < 1 || layout->rows > length
        || layout->columns > length || layout->bands > length)
        return 0;
    int64_t left = length / size;
    if (layout->columns > left / layout->bands || layout->rows > left / (layout->columns * layout->bands))
        return 0;
    return layout->rows * layout->columns * layout->bands * size == length;
}

int64_t whole_bytes(const Layout *layout)
{
    int64_t left = PY_SSIZE_T_MAX, factors[] = {layout->size, layout->bands, layout->columns, layout->rows};
    for (int i = 0; i < 4; i++) {
        if (factors[i] < 1)
            return -1;
        left /= factors[i];
    }
    return left < 1 ? -1 : layout->size * layout->bands * layout->columns * layout->rows;
}

int is_plain(const Layout *layout)
{
    return layout->bands == 1 && layout->predictor < 3 && (!layout->is_swapped || layout->size == 1);
}

static int is_straight(const Layout *layout) { return layout->predictor == 1 && layout->bands <= MOST_BANDS; }

int64_t row_bytes(const Layout *layout) { return layout->columns * layout->bands * layout->size; }

int64_t block_rows(const Layout *layout)
{
    int64_t fits = BLOCK / row_bytes(layout);
    return fits < 1 ? 1 : fits > layout->rows ? layout->rows : fits;
}

int prepare_layout(Placing *placing, Py_ssize_t length)
{
    Layout *layout = &placing->layout;
    int most = best_kind();
    layout->best = layout->best < most ? layout->best : most;
    if (!is_layout(layout, length))
        return 0;
    if (is_straight(layout) || (is_plain(layout) && !placing->is_part))
        return 1;
    placing->block = block_rows(layout);
    placing->memory = malloc((size_t)(placing->block * row_bytes(layout)));
    return placing->memory != NULL;
}

int prepare_rows(Placing *placing, const Py_buffer *target, Py_ssize_t length)
{
    placing->target = target;
    return is_layout(&placing->layout, length) && takes(target, &placing->layout, &placing->band_stride)
           && prepare_layout(placing, length);
}

void place(const uint8_t *data, const Placing *placing)
{
    if (is_plain(&placing->layout))
        place_plain(data, placing);
    else if (is_straight(&placing->layout))
        place_bands(data, placing);
    else
        place_all(data, placing);
}

void place_some(const uint8_t *data, const Placing *placing, int64_t first, int64_t rows)
{
    const Py_buffer *target = placing->target;
    int axis = target->ndim - 2;
    int64_t above = placing->row0 > first ? placing->row0 - first : 0; /* of these rows, how many are not wanted */
    if (above >= rows)
        return;
    data += above * row_bytes(&placing->layout);
    first += above - placing->row0, rows -= above;
    Py_ssize_t shape[MOST_AXES], left = target->shape[axis] - first;
    if (left <= 0)
        return;
    memcpy(shape, target->shape, (size_t)target->ndim * sizeof *shape);
    shape[axis] = left < rows ? left : rows;
    Py_buffer part = *target;
    part.buf = (uint8_t *)target->buf + first * target->strides[axis];
    part.shape = shape;
    Placing some = *placing;
    some.target = &part;
    some.layout.rows = rows;
    place(data, &some);
}

int unpack_rows(Packed *packed, const Placing *placing, uint8_t *memory, int64_t block)
{
    int64_t rows = placing->layout.rows, row = row_bytes(&placing->layout), ahead = 0;
    for (int64_t first = 0; first < rows; first += block) {
        int64_t some = block < rows - first ? block : rows - first, wanted = some * row;
        /* a run may go on in the next block, but not behind the last row */
        int64_t found = unpack(packed, memory + ahead, wanted - ahead, (rows - first) * row - ahead);
        if (found < wanted - ahead)
            return 0;
        place_some(memory, placing, first, some);
        ahead += found - wanted;
        memmove(memory, memory + wanted, (size_t)ahead);
    }
    return 1;
}

static PyObject *place_decoded(PyObject *args, int is_packed)
{
    PyObject *source, *target;
    long long rows, columns, bands;
    Placing placing = {.layout = {.best = 2}};
    Layout *layout = &placing.layout;
    if (!PyArg_ParseTuple(args, "OO(LLL)iip|i", &source, &target, &rows, &columns, &bands, &layout->size,
                          &layout->predictor, &layout->is_swapped, &layout->best))
        return NULL;
    layout->rows = rows, layout->columns = columns, layout->bands = bands;
    Py_buffer from, to;
    if (PyObject_GetBuffer(source, &from, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(target, &to, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&from);
        return NULL;
    }
    int is_done;
    uint8_t *memory = NULL;
    if (is_packed) {
        is_done = to.ndim <= MOST_AXES && prepare_rows(&placing, &to, whole_bytes(layout));
        int64_t block = is_done ? block_rows(layout) : 0;
        if (is_done)
            memory = malloc((size_t)(block * row_bytes(layout) + LONGEST_RUN));
        is_done = is_done && memory != NULL;
        if (is_done) {
            Packed packed = {from.buf, from.len, 0};
            Py_BEGIN_ALLOW_THREADS
            is_done = unpack_rows(&packed, &placing, memory, block);
            Py_END_ALLOW_THREADS
        }
    } else {
        is_done = prepare_rows(&placing, &to, from.len);
        if (is_done) {
            Py_BEGIN_ALLOW_THREADS
            place(from.buf, &placing);
            Py_END_ALLOW_THREADS
        }
    }
    free(memory);
    free(placing.memory);
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return PyBool_FromLong(is_done);
}

PyObject *place_rows(PyObject *module, PyObject *args) { return place_decoded(args, 0); }
PyObject *place_packbits(PyObject *module, PyObject *args) { return place_decoded(args, 1); }
