/* Copies of interleaved samples to an array that has each band by itself: RGBRGB to RRGGBB.
 *
 * numpy copies them one at a time. Here a vector of each band is put together from the vectors that its samples are
 * in, by shuffling bytes: with AVX2 or SSSE3 where the processor has them, which is asked at run time, with NEON on
 * ARM, and one by one elsewhere. The shuffles also swap the bytes of a sample, if they are in the other order.
 *
 * Both arrays come by the buffer protocol, which says where all their elements are; a copy happens only if both have
 * the same shape. Vectors are loaded and stored only for whole groups of pixels, so that nothing outside is touched.
 */
#include "native.h"

#include "bands.h"
#include <string.h>

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define HAS_SHUFFLES 1
#define FOR(feature) __attribute__((target(feature)))
#define INLINE static inline __attribute__((always_inline))
#include <immintrin.h>
#elif defined(_MSC_VER) && defined(_M_X64)
#define HAS_SHUFFLES 1
#define FOR(feature)
#define INLINE static __forceinline
#include <intrin.h>
#elif defined(__aarch64__) || defined(_M_ARM64)
#define HAS_TABLES 1
#include <arm_neon.h>
#endif

enum { MOST_AXES = 8, ABSENT = 0x80 };

void fill_masks(Masks *masks, int bands, int size, int is_swapped)
{
    for (int k = 0; k < bands; k++)
        for (int v = 0; v < bands; v++)
            for (int j = 0; j < VECTOR; j++) {
                int byte = is_swapped ? size - 1 - j % size : j % size;
                int place = (j / size * bands + k) * size + byte;
                masks->masks[k][v][j] = (uint8_t)(place / VECTOR == v ? place % VECTOR : ABSENT);
            }
}

/* Each of these copies whole groups of pixels, and returns how many pixels that were. */
#ifdef HAS_SHUFFLES
FOR("ssse3") INLINE int64_t group_ssse3(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size,
                                        const Masks *masks, const int bands)
{
    int64_t step = VECTOR / size, groups = pixels / step;
    __m128i mask[MOST_BANDS][MOST_BANDS];
    for (int k = 0; k < bands; k++)
        for (int v = 0; v < bands; v++)
            mask[k][v] = _mm_loadu_si128((const __m128i *)masks->masks[k][v]);
    for (int64_t g = 0; g < groups; g++, from += bands * VECTOR) {
        __m128i parts[MOST_BANDS];
        for (int v = 0; v < bands; v++)
            parts[v] = _mm_loadu_si128((const __m128i *)(from + v * VECTOR));
        for (int k = 0; k < bands; k++) {
            __m128i made = _mm_shuffle_epi8(parts[0], mask[k][0]);
            for (int v = 1; v < bands; v++)
                made = _mm_or_si128(made, _mm_shuffle_epi8(parts[v], mask[k][v]));
            _mm_storeu_si128((__m128i *)(to[k] + g * VECTOR), made);
        }
    }
    return groups * step;
}

FOR("ssse3") static int64_t copy_ssse3(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size, int bands,
                                       const Masks *masks)
{
    switch (bands) { /* with constants, the loops over bands are unrolled */
    case 1: return group_ssse3(from, to, pixels, size, masks, 1);
    case 2: return group_ssse3(from, to, pixels, size, masks, 2);
    case 3: return group_ssse3(from, to, pixels, size, masks, 3);
    default: return group_ssse3(from, to, pixels, size, masks, 4);
    }
}

/* The same for two groups at once, one in each half of a vector. */
FOR("avx2") INLINE int64_t group_avx2(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size,
                                      const Masks *masks, const int bands)
{
    int64_t step = 2 * VECTOR / size, groups = pixels / step;
    __m256i mask[MOST_BANDS][MOST_BANDS];
    for (int k = 0; k < bands; k++)
        for (int v = 0; v < bands; v++)
            mask[k][v] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)masks->masks[k][v]));
    for (int64_t g = 0; g < groups; g++, from += 2 * bands * VECTOR) {
        __m256i parts[MOST_BANDS];
        for (int v = 0; v < bands; v++) {
            const __m128i *low = (const __m128i *)(from + v * VECTOR), *high = low + bands;
            parts[v] = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
        }
        for (int k = 0; k < bands; k++) {
            __m256i made = _mm256_shuffle_epi8(parts[0], mask[k][0]);
            for (int v = 1; v < bands; v++)
                made = _mm256_or_si256(made, _mm256_shuffle_epi8(parts[v], mask[k][v]));
            _mm256_storeu_si256((__m256i *)(to[k] + g * 2 * VECTOR), made);
        }
    }
    return groups * step;
}

FOR("avx2") static int64_t copy_avx2(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size, int bands,
                                     const Masks *masks)
{
    switch (bands) {
    case 1: return group_avx2(from, to, pixels, size, masks, 1);
    case 2: return group_avx2(from, to, pixels, size, masks, 2);
    case 3: return group_avx2(from, to, pixels, size, masks, 3);
    default: return group_avx2(from, to, pixels, size, masks, 4);
    }
}

static int supports(int is_avx2)
{
#ifdef _MSC_VER
    int found[4];
    __cpuid(found, 1);
    if (!is_avx2)
        return found[2] >> 9 & 1;
    /* the system must save the upper halves of vectors, too */
    if ((found[2] >> 27 & 3) != 3 || (_xgetbv(0) & 6) != 6)
        return 0;
    __cpuidex(found, 7, 0);
    return found[1] >> 5 & 1;
#else
    return is_avx2 ? __builtin_cpu_supports("avx2") != 0 : __builtin_cpu_supports("ssse3") != 0;
#endif
}
#endif

#ifdef HAS_TABLES
static int64_t copy_neon(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size, int bands,
                         const Masks *masks)
{
    int64_t step = VECTOR / size, groups = pixels / step;
    for (int64_t g = 0; g < groups; g++, from += bands * VECTOR) {
        uint8x16_t parts[MOST_BANDS];
        for (int v = 0; v < bands; v++)
            parts[v] = vld1q_u8(from + v * VECTOR);
        for (int k = 0; k < bands; k++) {
            /* an index beyond the table gives 0, as ABSENT does in a shuffle */
            uint8x16_t made = vqtbl1q_u8(parts[0], vld1q_u8(masks->masks[k][0]));
            for (int v = 1; v < bands; v++)
                made = vorrq_u8(made, vqtbl1q_u8(parts[v], vld1q_u8(masks->masks[k][v])));
            vst1q_u8(to[k] + g * VECTOR, made);
        }
    }
    return groups * step;
}
#endif

static void copy_rest(const uint8_t *from, uint8_t *const *to, int64_t first, int64_t pixels, int size, int bands,
                      int is_swapped)
{
    for (int64_t i = first; i < pixels; i++)
        for (int k = 0; k < bands; k++)
            for (int b = 0; b < size; b++)
                to[k][i * size + b] = from[(i * bands + k) * size + (is_swapped ? size - 1 - b : b)];
}

void copy_row(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size, int bands, int is_swapped,
              const Masks *masks, int best)
{
    int64_t done = 0;
#ifdef HAS_SHUFFLES
    if (best >= 2)
        done = copy_avx2(from, to, pixels, size, bands, masks);
    if (best >= 1 && done < pixels) {
        uint8_t *rest[MOST_BANDS];
        for (int k = 0; k < bands; k++)
            rest[k] = to[k] + done * size;
        done += copy_ssse3(from + done * bands * size, rest, pixels - done, size, bands, masks);
    }
#elif defined(HAS_TABLES)
    if (best >= 1)
        done = copy_neon(from, to, pixels, size, bands, masks);
#endif
    copy_rest(from, to, done, pixels, size, bands, is_swapped);
}

int best_kind(void)
{
#ifdef HAS_SHUFFLES
    static int found = -1; /* every thread would find the same */
    if (found < 0)
        found = supports(1) && supports(0) ? 2 : supports(0);
    return found;
#elif defined(HAS_TABLES)
    return 1;
#else
    return 0;
#endif
}

/* Find the axis of bands and that of columns; return 0 if this is no copy of interleaved samples. */
static int find_axes(const Py_buffer *from, const Py_buffer *to, int *bands, int *columns)
{
    Py_ssize_t size = from->itemsize;
    *bands = *columns = -1;
    for (int i = 0; i < from->ndim; i++)
        if (from->shape[i] > 1 && from->strides[i] == size)
            *bands = i;
    if (*bands < 0 || from->shape[*bands] > MOST_BANDS)
        return 0;
    for (int i = 0; i < from->ndim; i++)
        if (i != *bands && from->strides[i] == size * from->shape[*bands] && to->strides[i] == size
            && from->shape[i] > 1)
            *columns = i;
    return *columns >= 0;
}

static int is_copy(const Py_buffer *from, const Py_buffer *to)
{
    if (from->ndim != to->ndim || from->ndim < 2 || from->ndim > MOST_AXES || from->itemsize != to->itemsize
        || from->strides == NULL || to->strides == NULL || from->shape == NULL || to->shape == NULL)
        return 0;
    if (from->itemsize != 1 && from->itemsize != 2)
        return 0; /* with 4 bytes, numpy is as fast */
    for (int i = 0; i < from->ndim; i++)
        if (from->shape[i] != to->shape[i] || from->shape[i] < 1)
            return 0;
    return 1;
}

static void copy_all(const Py_buffer *from, const Py_buffer *to, int band_axis, int column_axis, int is_swapped,
                     int best)
{
    int bands = (int)from->shape[band_axis], size = (int)from->itemsize;
    int64_t pixels = from->shape[column_axis];
    Masks masks;
    fill_masks(&masks, bands, size, is_swapped);
    Py_ssize_t at[MOST_AXES] = {0};
    for (;;) {
        const uint8_t *source = from->buf;
        uint8_t *target = to->buf, *rows[MOST_BANDS];
        for (int i = 0; i < from->ndim; i++) {
            source += at[i] * from->strides[i];
            target += at[i] * to->strides[i];
        }
        for (int k = 0; k < bands; k++)
            rows[k] = target + k * to->strides[band_axis];
        copy_row(source, rows, pixels, size, bands, is_swapped, &masks, best);
        int axis = from->ndim - 1;
        for (; axis >= 0; axis--) {
            if (axis == band_axis || axis == column_axis)
                continue;
            if (++at[axis] < from->shape[axis])
                break;
            at[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

PyObject *separate_bands(PyObject *module, PyObject *args)
{
    PyObject *source, *target;
    int is_swapped, best = 2, bands, columns;
    if (!PyArg_ParseTuple(args, "OOp|i", &source, &target, &is_swapped, &best))
        return NULL;
    Py_buffer from, to;
    if (PyObject_GetBuffer(source, &from, PyBUF_STRIDES) < 0)
        return NULL;
    if (PyObject_GetBuffer(target, &to, PyBUF_STRIDES | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&from);
        return NULL;
    }
    int most = best_kind();
    /* without vectors, numpy is faster */
    int is_done = most > 0 && is_copy(&from, &to) && find_axes(&from, &to, &bands, &columns);
    if (is_done) {
        Py_BEGIN_ALLOW_THREADS
        copy_all(&from, &to, bands, columns, is_swapped, best < most ? best : most);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    return PyBool_FromLong(is_done);
}
