/* JPEG pictures, decoded by the libjpeg that imagecodecs is linked with: libjpeg-turbo with the interface of libjpeg 8,
 * whose structures are declared here as far as they are used. libjpeg compares the size of the whole structure and the
 * version of the interface with its own before it touches it, and calls `error_exit` if they differ.
 *
 * Everything that libjpeg warns about, such as a stream that ends early, is left to the code in Python.
 */
#include "jpeg_pictures.h"

#include <setjmp.h>
#include <string.h>

enum { VERSION = 80, STRUCTURE = 656, TABLES_ONLY = 2, HEADER_OK = 1, MOST_ROWS = 64, TAIL = 64 };

typedef struct Common Common;

/* jpeglib.h: struct jpeg_error_mgr */
typedef struct {
    void (*error_exit)(Common *);
    void (*emit_message)(Common *, int);
    void (*output_message)(Common *);
    void (*format_message)(Common *, char *);
    void (*reset_error_mgr)(Common *);
    int msg_code;
    union {
        int i[8];
        char s[80];
    } msg_parm;
    int trace_level;
    long num_warnings;
    const char *const *jpeg_message_table;
    int last_jpeg_message;
    const char *const *addon_message_table;
    int first_addon_message, last_addon_message;
} Errors;

/* jpeglib.h: struct jpeg_decompress_struct, of which the first fields are struct jpeg_common_struct */
struct Common {
    Errors *err;
    void *mem, *progress, *client_data;
    int is_decompressor, global_state;
    void *src;
    unsigned int image_width, image_height;
    int num_components, jpeg_color_space, out_color_space;
    unsigned int scale_num, scale_denom;
    double output_gamma;
    int buffered_image, raw_data_out, dct_method, do_fancy_upsampling, do_block_smoothing, quantize_colors;
    int dither_mode, two_pass_quantize, desired_number_of_colors, enable_1pass_quant, enable_external_quant;
    int enable_2pass_quant;
    unsigned int output_width, output_height;
    int out_color_components, output_components, rec_outbuf_height, actual_number_of_colors;
    void *colormap;
    unsigned int output_scanline;
};

typedef Errors *(*StdError)(Errors *);
typedef void (*Create)(Common *, int, size_t);
typedef void (*MemSrc)(Common *, const uint8_t *, unsigned long);
typedef int (*ReadHeader)(Common *, int);
typedef int (*Start)(Common *);
typedef unsigned int (*ReadRows)(Common *, uint8_t **, unsigned int);
typedef void (*Destroy)(Common *);
enum { STD_ERROR, CREATE, MEM_SRC, READ_HEADER, START, READ_ROWS, DESTROY };
#define CALL(type, which) ((type)pictures->functions[which])

typedef struct {
    Errors errors;
    jmp_buf escape;
    union {
        Common common;
        uint8_t room[2 * STRUCTURE]; /* more than libjpeg accepts */
    } jpeg;
} Decoder;

static void stop(Common *jpeg) { longjmp(((Decoder *)jpeg->err)->escape, 1); }

/* Below 0 it is a warning: the data are damaged. */
static void hear(Common *jpeg, int level)
{
    if (level < 0)
        stop(jpeg);
}

/* Without an end marker the stream is cut, and libjpeg would fill the missing rows with grey. */
static int has_end(const uint8_t *data, size_t length)
{
    for (size_t i = length > TAIL ? length - TAIL : 0; i + 1 < length; i++)
        if (data[i] == 0xFF && data[i + 1] == 0xD9)
            return 1;
    return 0;
}

/* Read the rows of a picture whose header was read, and place them, a block at a time. */
static int read_rows(const JpegPictures *pictures, Common *jpeg, const Placing *placing, uint8_t *memory, int64_t block)
{
    const Layout *layout = &placing->layout;
    int64_t row = row_bytes(layout);
    if (!CALL(Start, START)(jpeg) || jpeg->output_width != layout->columns || jpeg->output_height != layout->rows
        || jpeg->output_components != layout->bands)
        return 0;
    for (int64_t first = 0; first < layout->rows; first += block) {
        int64_t some = block < layout->rows - first ? block : layout->rows - first;
        for (int64_t done = 0; done < some;) {
            uint8_t *rows[MOST_ROWS];
            int64_t wanted = some - done < MOST_ROWS ? some - done : MOST_ROWS;
            for (int64_t i = 0; i < wanted; i++)
                rows[i] = memory + (done + i) * row;
            unsigned int found = CALL(ReadRows, READ_ROWS)(jpeg, rows, (unsigned int)wanted);
            if (found == 0)
                return 0;
            done += found;
        }
        place_some(memory, placing, first, some);
    }
    return 1;
}

int decode_jpeg(const JpegPictures *pictures, const uint8_t *data, size_t length, const Placing *placing,
                uint8_t *memory, int64_t block)
{
    if (length < 10 || !has_end(data, length))
        return 0;
    Decoder decoder;
    Common *jpeg = &decoder.jpeg.common;
    memset(&decoder.jpeg, 0, sizeof decoder.jpeg);
    jpeg->err = CALL(StdError, STD_ERROR)(&decoder.errors);
    decoder.errors.error_exit = stop;
    decoder.errors.emit_message = hear;
    volatile int is_done = 0, is_created = 0;
    if (setjmp(decoder.escape) == 0) {
        CALL(Create, CREATE)(jpeg, VERSION, STRUCTURE);
        is_created = 1;
        int is_ready = 1;
        if (pictures->tables != NULL) {
            CALL(MemSrc, MEM_SRC)(jpeg, pictures->tables, (unsigned long)pictures->tables_length);
            is_ready = CALL(ReadHeader, READ_HEADER)(jpeg, 0) == TABLES_ONLY;
        }
        CALL(MemSrc, MEM_SRC)(jpeg, data, (unsigned long)length);
        is_ready = is_ready && CALL(ReadHeader, READ_HEADER)(jpeg, 1) == HEADER_OK
                && jpeg->image_width == placing->layout.columns && jpeg->image_height == placing->layout.rows;
        if (is_ready) {
            const int32_t *colors = pictures->colors[memcmp(data + 6, "JFIF", 4) == 0];
            if (colors[0] >= 0)
                jpeg->jpeg_color_space = colors[0];
            if (colors[1] >= 0)
                jpeg->out_color_space = colors[1];
            is_done = read_rows(pictures, jpeg, placing, memory, block);
        }
    }
    /* what it has taken is freed, whatever happened */
    if (is_created && setjmp(decoder.escape) == 0)
        CALL(Destroy, DESTROY)(jpeg);
    return is_done;
}
