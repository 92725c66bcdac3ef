/* Copies of decoded integers to a smaller type, if they are in the range of their depth.
 *
 * numpy would pass over them once for each step: adding, checking, subtracting, converting. Here one pass does all,
 * with AVX2 where the processor has it. The loops are plain C, which compilers vectorise.
 *
 * Both arrays come by the buffer protocol, contiguous and with the same number of elements.
 */
#include "native.h"

#include "bands.h"

#if (defined(__GNUC__) || defined(__clang__)) && defined(__x86_64__)
#define HAS_AVX2 1
#define FOR(feature) __attribute__((target(feature)))
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

enum { PIECE = 1 << 14 };

/* Unsigned arithmetic wraps around: a sample plus `half` has no bit above those of the depth if and only if the sample
 * is from -half to half - 1, also if the sum exceeds the type. `back` is subtracted again, for signed samples. */
#define DEFINE(NAME, FROM, TO)                                                                                         \
    INLINE uint32_t NAME(const void *source, void *target, int64_t count, uint32_t half, uint32_t back)                \
    {                                                                                                                  \
        const FROM *from = source, shift = (FROM)half, undo = (FROM)back;                                              \
        TO *to = target;                                                                                               \
        FROM bits = 0;                                                                                                 \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            FROM sample = (FROM)(from[i] + shift);                                                                     \
            bits |= sample;                                                                                            \
            to[i] = (TO)(sample - undo);                                                                               \
        }                                                                                                              \
        return bits;                                                                                                   \
    }

DEFINE(narrow_2_1, uint16_t, uint8_t)
DEFINE(narrow_2_2, uint16_t, uint16_t)
DEFINE(narrow_4_1, uint32_t, uint8_t)
DEFINE(narrow_4_2, uint32_t, uint16_t)

INLINE uint32_t narrow(const uint8_t *from, uint8_t *to, int64_t count, int large, int small, uint32_t half,
                       uint32_t back)
{
    if (large == 2)
        return small == 1 ? narrow_2_1(from, to, count, half, back) : narrow_2_2(from, to, count, half, back);
    return small == 1 ? narrow_4_1(from, to, count, half, back) : narrow_4_2(from, to, count, half, back);
}

static uint32_t narrow_plain(const uint8_t *from, uint8_t *to, int64_t count, int large, int small, uint32_t half,
                             uint32_t back)
{
    return narrow(from, to, count, large, small, half, back);
}

#ifdef HAS_AVX2
FOR("avx2") static uint32_t narrow_avx2(const uint8_t *from, uint8_t *to, int64_t count, int large, int small,
                                        uint32_t half, uint32_t back)
{
    return narrow(from, to, count, large, small, half, back);
}
#endif

/* Return whether all samples are in their range. Those after the first piece that is not are not copied. */
static int copy_all(const uint8_t *from, uint8_t *to, int64_t count, int large, int small, int depth, int is_signed,
                    int best)
{
    uint32_t half = 1u << (depth - 1), back = is_signed ? half : 0;
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t some = count - done < PIECE ? count - done : PIECE;
        const uint8_t *source = from + done * large;
        uint8_t *target = to + done * small;
        uint32_t bits;
#ifdef HAS_AVX2
        if (best >= 2)
            bits = narrow_avx2(source, target, some, large, small, half, back);
        else
#endif
            bits = narrow_plain(source, target, some, large, small, half, back);
        if (bits >> depth)
            return 0;
    }
    return 1;
}

PyObject *narrow_samples(PyObject *module, PyObject *args)
{
    PyObject *source, *target;
    int depth, is_signed, best = 2;
    if (!PyArg_ParseTuple(args, "OOip|i", &source, &target, &depth, &is_signed, &best))
        return NULL;
    Py_buffer from, to;
    if (PyObject_GetBuffer(source, &from, PyBUF_ND) < 0)
        return NULL;
    if (PyObject_GetBuffer(target, &to, PyBUF_ND | PyBUF_WRITABLE) < 0) {
        PyBuffer_Release(&from);
        return NULL;
    }
    int large = (int)from.itemsize, small = (int)to.itemsize, is_good = 0;
    int is_possible = (large == 2 || large == 4) && (small == 1 || small == 2) && depth >= 1 && depth <= 8 * small
        && from.len / large == to.len / small;
    if (is_possible) {
        int most = best_kind();
        Py_BEGIN_ALLOW_THREADS
        is_good = copy_all(from.buf, to.buf, from.len / large, large, small, depth, is_signed, best < most ? best : most);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&from);
    PyBuffer_Release(&to);
    if (!is_possible) {
        PyErr_SetString(PyExc_ValueError, "these arrays or this depth cannot be narrowed");
        return NULL;
    }
    return PyBool_FromLong(is_good);
}
