/* Decompression of chunks by functions whose addresses `codecs/libraries.py` looks up: the prototypes below are those of
 * the public, stable interfaces of these libraries.
 *
 * Whatever is not exactly a complete chunk of the expected size is left to the code in Python, which knows what to do
 * about it, and which words the error.
 */
#include "streams.h"

#include "fax.h"
#include "jpeg_pictures.h"
#include <stdlib.h>
#include <string.h>

/* libdeflate.h */
typedef void *(*DeflateNew)(void);
typedef int (*DeflateDecode)(void *, const void *, size_t, void *, size_t, size_t *, size_t *);
typedef void (*DeflateFree)(void *);

/* zstd.h; an error is a size that is larger than any that was asked for */
typedef void *(*ZstdNew)(void);
typedef size_t (*ZstdDecode)(void *, void *, size_t, const void *, size_t);
typedef size_t (*ZstdFree)(void *);

/* blosc.h */
typedef int (*BloscValidate)(const void *, size_t, size_t *);
typedef int (*BloscDecode)(const void *, void *, size_t, int);

/* lzma/base.h */
typedef struct {
    const uint8_t *next_in;
    size_t avail_in;
    uint64_t total_in;
    uint8_t *next_out;
    size_t avail_out;
    uint64_t total_out;
    const void *allocator;
    void *internal;
    void *reserved_pointers[4];
    uint64_t seek_pos, reserved_int2;
    size_t reserved_int3, reserved_int4;
    int reserved_enum1, reserved_enum2;
} XzStream;
typedef int (*XzBegin)(XzStream *, uint64_t, uint32_t);
typedef int (*XzCode)(XzStream *, int);
typedef void (*XzEnd)(XzStream *);
enum { XZ_OK = 0, XZ_STREAM_END = 1, XZ_FINISH = 3 };
#define XZ_MEMORY ((uint64_t)256 << 20) /* that of `codecs/streams.py` */

/* Lerc_c_api.h */
typedef unsigned (*LercInfo)(const uint8_t *, unsigned, unsigned *, double *, int, int);
typedef unsigned (*LercDecode)(const uint8_t *, unsigned, int, uint8_t *, int, int, int, int, unsigned, void *);
enum { LERC_TYPE = 1, LERC_DEPTH, LERC_COLUMNS, LERC_ROWS, LERC_BANDS, LERC_VALID, LERC_BYTES, LERC_MASKS,
       LERC_SAME_DEPTH, LERC_NODATA, LERC_INFO };

/* webp/decode.h; the version of the interface is checked by its upper byte */
typedef struct {
    int width, height, has_alpha, has_animation, format;
    uint32_t padding[5];
} WebpFeatures;
typedef int (*WebpInfo)(const uint8_t *, size_t, WebpFeatures *, int);
typedef uint8_t *(*WebpDecode)(const uint8_t *, size_t, uint8_t *, size_t, int);
enum { WEBP_VERSION = 0x0209 };

int function_count(int kind)
{
    static const int counts[STREAM_KINDS] = {
        [STREAM_DEFLATE] = 3, [STREAM_ZSTD] = 3, [STREAM_XZ] = 3, [STREAM_LERC] = 2, [STREAM_WEBP] = 3,
        [STREAM_JPEG] = JPEG_FUNCTIONS, [STREAM_GZIP] = 3, [STREAM_BLOSC] = 2,
    };
    return counts[kind];
}

int begin_stream(Stream *stream)
{
    switch (stream->kind) {
    case STREAM_LZW: stream->state = new_lzw_table(); break;
    case STREAM_GZIP:
    case STREAM_DEFLATE: stream->state = ((DeflateNew)stream->functions[0])(); break;
    case STREAM_ZSTD: stream->state = ((ZstdNew)stream->functions[0])(); break;
    case STREAM_FAX: stream->state = new_fax_memory(stream->columns); break;
    case STREAM_XZ: stream->state = calloc(1, sizeof(XzStream)); break;
    default: return 1;
    }
    return stream->state != NULL;
}

void end_stream(Stream *stream)
{
    if (stream->state == NULL)
        return;
    switch (stream->kind) {
    case STREAM_GZIP:
    case STREAM_DEFLATE: ((DeflateFree)stream->functions[2])(stream->state); break;
    case STREAM_ZSTD: ((ZstdFree)stream->functions[2])(stream->state); break;
    case STREAM_XZ: ((XzEnd)stream->functions[2])(stream->state); free(stream->state); break;
    default: free(stream->state);
    }
}

/* The decoder begins anew with the memory that it has. With room for one more byte than there should be, it goes on to the
 * end of the stream, and compares its checks and sizes. */
static int decode_xz(Stream *stream, const uint8_t *data, size_t length, uint8_t *out, size_t nbytes)
{
    XzStream *xz = stream->state;
    if (((XzBegin)stream->functions[0])(xz, XZ_MEMORY, 0) != XZ_OK)
        return 0;
    xz->next_in = data, xz->avail_in = length;
    xz->next_out = out, xz->avail_out = nbytes + 1;
    return ((XzCode)stream->functions[1])(xz, XZ_FINISH) == XZ_STREAM_END && xz->total_out == nbytes;
}

/* Only samples of the expected type, all of which are valid. */
static int decode_lerc(Stream *stream, const uint8_t *data, size_t length, uint8_t *out)
{
    unsigned info[LERC_INFO] = {0};
    if (length > UINT32_MAX
        || ((LercInfo)stream->functions[0])(data, (unsigned)length, info, NULL, LERC_INFO, 0) != 0
        || info[LERC_TYPE] != (unsigned)stream->number || info[LERC_DEPTH] != stream->bands || info[LERC_BANDS] != 1
        || info[LERC_COLUMNS] != stream->columns || info[LERC_ROWS] != stream->rows || info[LERC_MASKS] != 0
        || info[LERC_VALID] != stream->rows * stream->columns || info[LERC_NODATA] != 0)
        return 0;
    return ((LercDecode)stream->functions[1])(data, (unsigned)length, 0, NULL, (int)stream->bands, (int)stream->columns,
                                              (int)stream->rows, 1, info[LERC_TYPE], out) == 0;
}

static int decode_webp(Stream *stream, const uint8_t *data, size_t length, uint8_t *out, size_t nbytes)
{
    WebpFeatures found = {0};
    if (((WebpInfo)stream->functions[0])(data, length, &found, WEBP_VERSION) != 0 || found.width != stream->columns
        || found.height != stream->rows || found.has_alpha != (stream->bands == 4) || found.has_animation)
        return 0;
    WebpDecode decode = (WebpDecode)stream->functions[stream->bands == 4 ? 2 : 1];
    return decode(data, length, out, nbytes, (int)(stream->columns * stream->bands)) != NULL;
}

/* The header of a stream of blosc states its sizes; bytes may follow it where they may follow other streams. */
static int decode_blosc(const Stream *stream, const uint8_t *data, size_t length, uint8_t *out, size_t nbytes)
{
    size_t found = 0;
    uint32_t stored;
    if (length < 16)
        return 0;
    memcpy(&stored, data + 12, sizeof stored);
    if (stored != length || ((BloscValidate)stream->functions[0])(data, length, &found) != 0 || found != nbytes)
        return 0;
    return ((BloscDecode)stream->functions[1])(data, out, nbytes, 1) == (int)nbytes;
}

int decode_stream(Stream *stream, const uint8_t *data, size_t length, uint8_t *out, size_t nbytes)
{
    size_t found = 0, used = 0;
    switch (stream->kind) {
    case STREAM_LZW:
        return nbytes <= UINT32_MAX
               && decode_lzw(data, (int64_t)length, out, (int64_t)nbytes, stream->state) == (int64_t)nbytes;
    case STREAM_GZIP:
    case STREAM_DEFLATE:
        return ((DeflateDecode)stream->functions[1])(stream->state, data, length, out, nbytes, &used, &found) == 0
               && found == nbytes && (!stream->number || used == length);
    case STREAM_BLOSC: return decode_blosc(stream, data, length, out, nbytes);
    case STREAM_ZSTD: return ((ZstdDecode)stream->functions[1])(stream->state, out, nbytes, data, length) == nbytes;
    case STREAM_XZ: return decode_xz(stream, data, length, out, nbytes);
    case STREAM_FAX:
        return decode_fax(stream->tables, data, (int64_t)length, out, stream->rows, stream->columns, stream->number, 1,
                          stream->state);
    case STREAM_LERC: return decode_lerc(stream, data, length, out);
    case STREAM_WEBP: return decode_webp(stream, data, length, out, nbytes);
    default: return 0;
    }
}
