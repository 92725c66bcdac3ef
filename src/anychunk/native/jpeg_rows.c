/* The walk over the entropy-coded data of a baseline JPEG scan: ITU-T T.81 annexes E and F.
 *
 * It decodes the Huffman codes and nothing else, to find where each row of MCUs begins, and the predictions of the DC
 * coefficients there. `codestream/jpeg_points.py` says what that is for; without this module, pictures are decoded from
 * their first row.
 *
 * Every number comes from an untrusted file. The invariants that keep memory accesses inside their arrays:
 *   - `layout` and `state` are checked before the walk begins;
 *   - bytes are read only by `refill`, which checks the end of the given bytes;
 *   - codes longer than LOOK bits are found by comparing, and their symbols are checked against the number of symbols.
 */
#include "native.h"

#include <string.h>

enum { LOOK = 10, MOST_TABLES = 8, MOST_BLOCKS = 10, MOST_COMPONENTS = 4, TABLE = 16 + 256 };
/* a row: byte and bit where it begins, the predictions; then of each component's first DC coefficient the first bit
 * and the number of bits, counted from the beginning of the row, and the value */
enum { BYTE, BIT, PREDICTIONS, FIRST = PREDICTIONS + MOST_COMPONENTS, ROW = FIRST + 3 * MOST_COMPONENTS };

typedef struct {
    uint16_t look[1 << LOOK]; /* by the next bits: symbol and length of the code; 0 if it is longer */
    int32_t limit[18];        /* of each length: the first code that is longer, as 16 bits */
    int32_t offset[17];       /* of each length: add the code for the number of its symbol */
    const uint8_t *symbols;
    int count;
} Table;

typedef struct {
    const uint8_t *data;
    int64_t length, at;       /* the next byte to load */
    uint64_t bits;            /* loaded and not used, from the highest bit on */
    int left;                 /* how many */
    int64_t loaded;           /* bits since the walk began */
} Reader;

static int make_table(Table *table, const uint8_t *given)
{
    int32_t code = 0, number = 0;
    memset(table, 0, sizeof *table);
    table->symbols = given + 16;
    for (int length = 1; length <= 16; length++) {
        table->offset[length] = number - code;
        for (int i = 0; i < given[length - 1]; i++, code++, number++) {
            if (number >= 256 || code >= (1 << length))
                return 0;
            if (length <= LOOK)
                for (int rest = 0; rest < 1 << (LOOK - length); rest++)
                    table->look[(code << (LOOK - length)) | rest] = (uint16_t)(given[16 + number] << 8 | length);
        }
        table->limit[length] = code << (16 - length);
        code <<= 1;
    }
    table->limit[17] = INT32_MAX;
    table->count = number;
    return 1;
}

static inline int has_ff(uint64_t word)
{
    return (~word - 0x0101010101010101u) & word & 0x8080808080808080u ? 1 : 0;
}

/* Load bytes, each without the zero that is stuffed after 0xFF, up to the next marker or the end. */
static inline void refill(Reader *reader)
{
    if (reader->left > 31)
        return;
    if (reader->length - reader->at >= 8) {
        const uint8_t *d = reader->data + reader->at;
        uint64_t word = (uint64_t)d[0] << 56 | (uint64_t)d[1] << 48 | (uint64_t)d[2] << 40 | (uint64_t)d[3] << 32 |
                        (uint64_t)d[4] << 24 | (uint64_t)d[5] << 16 | (uint64_t)d[6] << 8 | d[7];
        if (!has_ff(word)) {
            int bytes = (63 - reader->left) >> 3;
            /* bits beyond those that are counted are those that are loaded next */
            reader->bits |= word >> reader->left;
            reader->at += bytes;
            reader->left += 8 * bytes;
            reader->loaded += 8 * bytes;
            return;
        }
    }
    while (reader->left <= 56 && reader->at < reader->length) {
        uint8_t byte = reader->data[reader->at];
        if (byte == 0xFF) {
            if (reader->at + 1 >= reader->length || reader->data[reader->at + 1] != 0)
                return;
            reader->at++;
        }
        reader->at++;
        reader->bits |= (uint64_t)byte << (56 - reader->left);
        reader->left += 8;
        reader->loaded += 8;
    }
}

static inline int take(Reader *reader, int count)
{
    if (reader->left < count)
        return 0;
    reader->bits <<= count;
    reader->left -= count;
    return 1;
}

/* Return the next symbol; -1 if the bits are no code or end. At most 16 bits are taken. */
static inline int symbol(Reader *reader, const Table *table)
{
    uint16_t found = table->look[reader->bits >> (64 - LOOK)];
    if (found)
        return take(reader, found & 255) ? found >> 8 : -1;
    int32_t next = (int32_t)(reader->bits >> 48);
    int length = LOOK + 1;
    while (next >= table->limit[length])
        length++;
    if (length > 16)
        return -1;
    int number = (next >> (16 - length)) + table->offset[length];
    return number >= 0 && number < table->count && take(reader, length) ? table->symbols[number] : -1;
}

/* Where the next bit is: the byte, with stuffed zeros counted, and the bit in it. */
static void place(const Reader *reader, int64_t *row)
{
    int64_t at = reader->at;
    for (int rest = reader->left; rest > 0; rest -= 8) {
        at--;
        if (at > 0 && reader->data[at] == 0 && reader->data[at - 1] == 0xFF)
            at--;
    }
    row[BYTE] = at;
    row[BIT] = (8 - reader->left % 8) % 8;
}

/* Walk one MCU; `first` takes the DC coefficients of the components if it is the first of a row. */
static int walk_unit(Reader *reader, const Table *tables, const int64_t *blocks, int64_t count, int64_t *predictions,
                     int64_t begin, int64_t *first)
{
    for (int64_t b = 0; b < count; b++) {
        int64_t component = blocks[3 * b];
        const Table *ac = tables + blocks[3 * b + 2];
        refill(reader);
        int64_t start = reader->loaded - reader->left;
        int size = symbol(reader, tables + blocks[3 * b + 1]);
        if (size < 0 || size > 15)
            return 0;
        int64_t value = 0;
        if (size) {
            value = (int64_t)(reader->bits >> (64 - size));
            if (!take(reader, size))
                return 0;
            if (value < (int64_t)1 << (size - 1))
                value -= ((int64_t)1 << size) - 1;
        }
        predictions[component] += value;
        if (predictions[component] < -32768 || predictions[component] > 32767)
            return 0;
        if (first && first[3 * component + 1] == 0) {
            first[3 * component] = start - begin;
            first[3 * component + 1] = reader->loaded - reader->left - start;
            first[3 * component + 2] = predictions[component];
        }
        for (int k = 1; k < 64;) {
            refill(reader);
            int pair = symbol(reader, ac);
            if (pair < 0)
                return 0;
            size = pair & 15;
            if (size == 0) {
                if (pair != 0xF0)
                    break; /* end of block; other runs without a value do not occur in a sequential scan */
                k += 16;
                if (k > 63)
                    return 0;
                continue;
            }
            k += (pair >> 4) + 1;
            if (k > 64 || !take(reader, size))
                return 0;
        }
    }
    return 1;
}

static int is_layout(const int64_t *layout, int64_t count, int64_t tables)
{
    if (count < 4 || layout[0] < 1 || layout[0] > 65535 || (count - 1) % 3 || (count - 1) / 3 > MOST_BLOCKS)
        return 0;
    for (int64_t i = 1; i < count; i += 3)
        if (layout[i] < 0 || layout[i] >= MOST_COMPONENTS || layout[i + 1] < 0 || layout[i + 1] >= tables ||
            layout[i + 2] < 0 || layout[i + 2] >= tables)
            return 0;
    return 1;
}

/* jpeg_walk(data, tables, layout, rows, first) -> int
 *
 * `data` is the entropy-coded data and what follows; `tables` one or more Huffman tables, each 16 counts and 256
 * symbols; `layout` int64: MCUs per row, then for each block of an MCU its component, DC table and AC table; `rows`
 * int64 records as above, of which number `first` says where to begin. The walk fills the rest of that record, and the
 * following ones; of the last, only where it begins. Return the number of the record where it stopped: damage, or the
 * end of the data, or the last record. */
PyObject *jpeg_walk(PyObject *module, PyObject *args)
{
    Py_buffer data, given, layout_buffer, rows_buffer;
    Py_ssize_t at;
    Table tables[MOST_TABLES];
    if (!PyArg_ParseTuple(args, "y*y*y*w*n", &data, &given, &layout_buffer, &rows_buffer, &at))
        return NULL;
    int64_t layout[1 + 3 * MOST_BLOCKS], row[ROW], next[ROW];
    int64_t numbers = layout_buffer.len / 8, count = rows_buffer.len / (ROW * 8), table_count = given.len / TABLE;
    int is_good = table_count <= MOST_TABLES && numbers <= 1 + 3 * MOST_BLOCKS && at >= 0 && at < count;
    if (is_good) {
        memcpy(layout, layout_buffer.buf, (size_t)numbers * 8);
        is_good = is_layout(layout, numbers, table_count);
    }
    for (int64_t i = 0; is_good && i < table_count; i++)
        is_good = make_table(tables + i, (const uint8_t *)given.buf + i * TABLE);
    char *rows = rows_buffer.buf;
    if (is_good) {
        memcpy(row, rows + at * ROW * 8, sizeof row);
        is_good = row[BYTE] >= 0 && row[BYTE] <= data.len && row[BIT] >= 0 && row[BIT] < 8;
    }
    if (is_good) {
        Py_BEGIN_ALLOW_THREADS
        Reader reader = {data.buf, data.len, row[BYTE], 0, 0, 0};
        refill(&reader);
        int is_on = take(&reader, (int)row[BIT]) || at + 1 == count;
        while (is_on && at + 1 < count) {
            memset(row + FIRST, 0, 3 * MOST_COMPONENTS * 8);
            memcpy(next, row, sizeof next);
            int64_t begin = reader.loaded - reader.left;
            for (int64_t unit = 0; is_on && unit < layout[0]; unit++)
                is_on = walk_unit(&reader, tables, layout + 1, (numbers - 1) / 3, next + PREDICTIONS, begin,
                                  unit ? NULL : row + FIRST);
            if (!is_on)
                break;
            place(&reader, next);
            memset(next + FIRST, 0, 3 * MOST_COMPONENTS * 8);
            memcpy(rows + at * ROW * 8, row, sizeof row);
            at++;
            memcpy(rows + at * ROW * 8, next, sizeof next);
            memcpy(row, next, sizeof row);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&given);
    PyBuffer_Release(&layout_buffer);
    PyBuffer_Release(&rows_buffer);
    if (!is_good) {
        PyErr_SetString(PyExc_ValueError, "jpeg_walk: tables, layout or rows are not as expected");
        return NULL;
    }
    return PyLong_FromSsize_t(at);
}
