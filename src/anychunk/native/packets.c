/* The walk over the packet headers of one JPEG 2000 tile: ITU-T T.800 annex B, T.814 annex B.
 *
 * It does what `codestream/packet_walk.py` does in Python, with the same results, and is tested against it. That module
 * says what packets are and what is collected; here are only remarks on the C code.
 *
 * Every number comes from an untrusted file. The invariants that keep memory accesses inside their arrays:
 *   - `walk_place` counts precincts and code-blocks with checked arithmetic, and refuses more than MOST_PRECINCTS and
 *     MOST_BLOCKS;
 *   - it then allocates all arrays with at least these counts, except for `ranges` and `segments`, which grow by `grow`;
 *   - bytes are read only by `fill` and `has_marker`, which check the end of the given bytes.
 */
#include "native.h"

#include "packets.h"

#include <stdlib.h>
#include <string.h>

enum { LAZY = 1, TERMINATE_ALL = 4, HT = 0x40 };
enum { HAS_SOP = 1, HAS_EPH = 2, HAS_HEADERS = 4 };
enum { MOST_LEVELS = 32, MOST_PLANES = 80, MOST_PASSES = 60000, TREE_DEPTH = 24 };
enum { HEAD = 10, PER_COMPONENT = 7 + 2 * (MOST_LEVELS + 1), PER_VOLUME = 6 };
#define MOST_PRECINCTS ((int64_t)1 << 24)
#define MOST_BLOCKS ((int64_t)1 << 24)
#define HIGHEST ((int64_t)1 << 40)

/* What `walk_resume` answers; `codestream/packet_walk.py` has the same list. */
enum { DONE, MORE, NO_HEADER, LONG_BODY, MANY_PLANES, MANY_PASSES, REST, NO_MEMORY, NO_EPH };

typedef struct { uint16_t low; uint8_t is_known; } Node;
typedef struct { uint8_t lblock, planes, is_open; uint16_t passes; } Block;
typedef struct { uint32_t block, length; int64_t offset; } Range;
/* `is_more`: continues the last segment of its code-block, which an earlier packet left open */
typedef struct { uint32_t block, length; uint16_t passes; uint8_t is_more; } Segment;

typedef struct {
    int64_t first;           /* number of its first code-block in the band */
    int64_t stride;          /* code-blocks in a row of the band */
    int64_t nodes;           /* first node of its two tag trees */
    int32_t width, height;   /* in code-blocks */
    int32_t tree;            /* nodes of one tag tree */
} Part;

typedef struct {
    int64_t x, y;            /* position on the reference grid, for progressions by position */
    int64_t parts;           /* its first Part */
    int32_t component, resolution;
    int32_t count;           /* of parts that have code-blocks */
    int32_t layers;          /* packets that were read */
    uint8_t style;
} Precinct;

typedef struct { int64_t progression, r0, r1, c0, c1, layers; } Volume;
typedef struct { int64_t y, x, order, precinct; } Place;

typedef struct {
    int64_t x0, y0, x1, y1, layers, flags, total, components, volumes;
    int has_table;           /* whether ranges and segments are kept */
    Volume *volume;
    int64_t *starts;         /* first precinct of (component, resolution): components x (MOST_LEVELS + 2) */
    Precinct *precincts;
    Part *parts;
    Node *nodes;
    Block *blocks;
    int64_t precinct_count, part_count, node_count, block_count;
    int64_t precinct_room, part_room, node_room, block_room; /* of the arrays, which serve one tile after another */
    Range *ranges;
    int64_t range_count, range_room;
    Segment *segments;
    int64_t segment_count, segment_room;
    int is_segmented;
    /* the packet that is next: volume, and place in its list */
    int64_t at_volume, at_entry, list_count;
    int64_t *list;           /* precincts of the current group, in order */
    Place *places;
    int64_t at_group, groups;
    int64_t position;        /* in the body */
    int64_t header_position; /* in the separate headers */
    int64_t packets;
    Node *saved_nodes;
    Block *saved_blocks;
    int64_t saved_room_nodes, saved_room_blocks;
} Walk;

static int64_t ceil_shift(int64_t value, int64_t shift) { return -((-value) >> shift); }
static int64_t ceil_divide(int64_t value, int64_t by) { return (value + by - 1) / by; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t tree_nodes(int64_t width, int64_t height)
{
    int64_t count = width * height;
    while (width * height > 1) {
        width = (width + 1) / 2;
        height = (height + 1) / 2;
        count += width * height;
    }
    return count;
}

static void walk_free(Walk *walk)
{
    if (walk == NULL)
        return;
    free(walk->volume);
    free(walk->starts);
    free(walk->precincts);
    free(walk->parts);
    free(walk->nodes);
    free(walk->blocks);
    free(walk->ranges);
    free(walk->segments);
    free(walk->list);
    free(walk->places);
    free(walk->saved_nodes);
    free(walk->saved_blocks);
    free(walk);
}

static int grow(void **array, int64_t *room, int64_t count, size_t size)
{
    if (count < *room)
        return 1;
    int64_t more = *room ? 2 * *room : 1024;
    void *larger_array = realloc(*array, (size_t)more * size);
    if (larger_array == NULL)
        return 0;
    *array = larger_array;
    *room = more;
    return 1;
}

/* Geometry: the same formulas as in `codestream/packets.py` (T.800 B.5 to B.7). Count, or place what was counted before.
 * Return 0 if there are too many. */
static int place_precincts(Walk *walk, const int64_t *given, int is_counted)
{
    int64_t precincts = 0, parts = 0, nodes = 0, blocks = 0;
    for (int64_t c = 0; c < walk->components; c++) {
        const int64_t *style = given + c * PER_COMPONENT;
        int64_t dx = style[0], dy = style[1], levels = style[2];
        int64_t x0 = ceil_divide(walk->x0, dx), x1 = ceil_divide(walk->x1, dx);
        int64_t y0 = ceil_divide(walk->y0, dy), y1 = ceil_divide(walk->y1, dy);
        if (style[5] & (LAZY | TERMINATE_ALL | HT))
            walk->is_segmented = 1;
        for (int64_t r = 0; r <= levels; r++) {
            walk->starts[c * (MOST_LEVELS + 2) + r] = precincts;
            int64_t shift = levels - r, low = r == 0;
            int64_t ppx = style[7 + 2 * r], ppy = style[8 + 2 * r];
            int64_t rx0 = ceil_shift(x0, shift), rx1 = ceil_shift(x1, shift);
            int64_t ry0 = ceil_shift(y0, shift), ry1 = ceil_shift(y1, shift);
            if (rx0 >= rx1 || ry0 >= ry1)
                continue;
            int64_t px0 = rx0 >> ppx, px1 = ceil_shift(rx1, ppx), py0 = ry0 >> ppy, py1 = ceil_shift(ry1, ppy);
            int64_t ex = low ? ppx : ppx - 1, ey = low ? ppy : ppy - 1;
            int64_t cx = smaller(style[3], ex), cy = smaller(style[4], ey);
            int64_t bands = low ? 1 : 3;
            int64_t bx0[3], bx1[3], by0[3], by1[3], base[3], stride[3];
            for (int64_t b = 0; b < bands; b++) {
                int64_t half_x = low || b == 1 ? 0 : (int64_t)1 << shift;
                int64_t half_y = low || b == 0 ? 0 : (int64_t)1 << shift;
                int64_t down = low ? shift : shift + 1;
                bx0[b] = ceil_shift(x0 - half_x, down);
                bx1[b] = ceil_shift(x1 - half_x, down);
                by0[b] = ceil_shift(y0 - half_y, down);
                by1[b] = ceil_shift(y1 - half_y, down);
                base[b] = blocks;
                stride[b] = 0;
                if (bx1[b] > bx0[b] && by1[b] > by0[b]) {
                    stride[b] = ceil_shift(bx1[b], cx) - (bx0[b] >> cx);
                    int64_t rows = ceil_shift(by1[b], cy) - (by0[b] >> cy);
                    if (stride[b] > MOST_BLOCKS || rows > MOST_BLOCKS || stride[b] * rows > MOST_BLOCKS)
                        return 0;
                    blocks += stride[b] * rows;
                }
                if (blocks > MOST_BLOCKS)
                    return 0;
            }
            if (px1 - px0 > MOST_PRECINCTS || py1 - py0 > MOST_PRECINCTS
                || (px1 - px0) * (py1 - py0) > MOST_PRECINCTS - precincts)
                return 0;
            for (int64_t py = py0; py < py1; py++)
                for (int64_t px = px0; px < px1; px++) {
                    int32_t count = 0;
                    int64_t first_part = parts;
                    for (int64_t b = 0; b < bands; b++) {
                        int64_t left = larger(bx0[b], px * ((int64_t)1 << ex));
                        int64_t right = smaller(bx1[b], (px + 1) * ((int64_t)1 << ex));
                        int64_t top = larger(by0[b], py * ((int64_t)1 << ey));
                        int64_t bottom = smaller(by1[b], (py + 1) * ((int64_t)1 << ey));
                        if (right <= left || bottom <= top)
                            continue;
                        int64_t column = left >> cx, row = top >> cy;
                        int64_t width = ceil_shift(right, cx) - column, height = ceil_shift(bottom, cy) - row;
                        int64_t tree = tree_nodes(width, height);
                        if (is_counted) {
                            Part *part = walk->parts + parts;
                            part->first = base[b] + (row - (by0[b] >> cy)) * stride[b] + column - (bx0[b] >> cx);
                            part->stride = stride[b];
                            part->nodes = nodes;
                            part->width = (int32_t)width;
                            part->height = (int32_t)height;
                            part->tree = (int32_t)tree;
                        }
                        nodes += 2 * tree;
                        parts++;
                        count++;
                    }
                    if (is_counted) {
                        Precinct *precinct = walk->precincts + precincts;
                        /* T.800 B.12.1.3: a precinct that begins outside the tile is met at the tile's edge */
                        precinct->x = larger(walk->x0, px * ((int64_t)1 << (ppx + shift)) * dx);
                        precinct->y = larger(walk->y0, py * ((int64_t)1 << (ppy + shift)) * dy);
                        precinct->parts = first_part;
                        precinct->component = (int32_t)c;
                        precinct->resolution = (int32_t)r;
                        precinct->count = count;
                        precinct->layers = 0;
                        precinct->style = (uint8_t)style[5];
                    }
                    precincts++;
                }
        }
        for (int64_t r = levels + 1; r < MOST_LEVELS + 2; r++)
            walk->starts[c * (MOST_LEVELS + 2) + r] = precincts;
    }
    walk->precinct_count = precincts;
    walk->part_count = parts;
    walk->node_count = nodes;
    walk->block_count = blocks;
    return 1;
}

static int is_inside(int64_t value, int64_t low, int64_t high) { return low <= value && value <= high; }

/* Return whether the parameters are such as `codestream/blocks.py` makes. */
static int are_parameters(const int64_t *given, int64_t count)
{
    if (count < HEAD || given[0] != 1)
        return 0;
    int64_t components = given[8], volumes = given[9];
    if (!is_inside(components, 1, 16384) || !is_inside(volumes, 1, 1 << 20)
        || count != HEAD + components * PER_COMPONENT + volumes * PER_VOLUME)
        return 0;
    if (!is_inside(given[1], 0, HIGHEST) || !is_inside(given[2], 0, HIGHEST) || !is_inside(given[3], 0, HIGHEST)
        || !is_inside(given[4], 0, HIGHEST) || !is_inside(given[5], 1, 65535) || given[7] < 0)
        return 0;
    for (int64_t c = 0; c < components; c++) {
        const int64_t *style = given + HEAD + c * PER_COMPONENT;
        if (!is_inside(style[0], 1, 255) || !is_inside(style[1], 1, 255) || !is_inside(style[2], 0, MOST_LEVELS)
            || !is_inside(style[3], 2, 10) || !is_inside(style[4], 2, 10) || !is_inside(style[5], 0, 255))
            return 0;
        for (int64_t r = 0; r <= style[2]; r++)
            if (!is_inside(style[7 + 2 * r], r > 0, 15) || !is_inside(style[8 + 2 * r], r > 0, 15))
                return 0;
    }
    const int64_t *listed = given + HEAD + components * PER_COMPONENT;
    for (int64_t v = 0; v < volumes; v++) {
        const int64_t *volume = listed + v * PER_VOLUME;
        if (!is_inside(volume[0], 0, 4) || !is_inside(volume[1], 0, 255) || !is_inside(volume[2], 0, MOST_LEVELS + 1)
            || !is_inside(volume[3], 0, 65535) || !is_inside(volume[4], 0, components)
            || !is_inside(volume[5], 0, 65535))
            return 0;
    }
    return 1;
}

/* Return a walk over no tile yet; NULL with a message for other parameters, or without one if there is no memory. */
static Walk *walk_new(const int64_t *given, int64_t count, int has_table, const char **problem)
{
    *problem = "malformed parameters";
    if (!are_parameters(given, count))
        return NULL;
    *problem = NULL;
    Walk *walk = calloc(1, sizeof(Walk));
    if (walk == NULL)
        return NULL;
    walk->has_table = has_table;
    walk->layers = given[5]; walk->flags = given[6];
    walk->components = given[8]; walk->volumes = given[9];
    walk->starts = calloc((size_t)(walk->components * (MOST_LEVELS + 2)), sizeof(int64_t));
    walk->volume = calloc((size_t)walk->volumes, sizeof(Volume));
    if (walk->starts == NULL || walk->volume == NULL) {
        walk_free(walk);
        return NULL;
    }
    memcpy(walk->volume, given + HEAD + walk->components * PER_COMPONENT, (size_t)walk->volumes * sizeof(Volume));
    return walk;
}

/* Make room for `count` elements and one more, which need not keep what was in the array. */
static int reserve(void **array, int64_t *room, int64_t count, size_t size)
{
    if (count < *room)
        return 1;
    free(*array);
    *array = calloc((size_t)count + 1, size);
    *room = *array == NULL ? 0 : count + 1;
    return *array != NULL;
}

/* Place the precincts of a tile: x0, y0, x1, y1, and the bytes of its packets. Return 0 with a message if there are too
 * many of them, or without one if there is no memory. */
static int walk_place(Walk *walk, const int64_t *given, const int64_t *rect, int64_t total, const char **problem)
{
    int64_t lists = walk->precinct_room, places = walk->precinct_room;
    walk->x0 = rect[0]; walk->y0 = rect[1]; walk->x1 = rect[2]; walk->y1 = rect[3];
    walk->total = total;
    walk->at_volume = walk->at_entry = walk->position = walk->header_position = walk->packets = 0;
    walk->at_group = -1;
    *problem = NULL;
    if (!place_precincts(walk, given + HEAD, 0)) {
        *problem = "too many code-blocks or precincts";
        return 0;
    }
    /* every precinct has a packet, of at least one byte; the callers report a tile that has too few */
    if (!(walk->flags & HAS_HEADERS) && walk->precinct_count > walk->total) {
        *problem = "fewer bytes than precincts";
        return 0;
    }
    /* `reserve` clears what it allocates */
    int has_nodes = walk->node_count < walk->node_room, has_blocks = walk->block_count < walk->block_room;
    if (!reserve((void **)&walk->list, &lists, walk->precinct_count, sizeof(int64_t))
        || !reserve((void **)&walk->places, &places, walk->precinct_count, sizeof(Place))
        || !reserve((void **)&walk->precincts, &walk->precinct_room, walk->precinct_count, sizeof(Precinct))
        || !reserve((void **)&walk->parts, &walk->part_room, walk->part_count, sizeof(Part))
        || !reserve((void **)&walk->nodes, &walk->node_room, walk->node_count, sizeof(Node))
        || !reserve((void **)&walk->blocks, &walk->block_room, walk->block_count, sizeof(Block)))
        return 0;
    if (has_nodes)
        memset(walk->nodes, 0, (size_t)walk->node_count * sizeof(Node));
    if (has_blocks)
        memset(walk->blocks, 0, (size_t)walk->block_count * sizeof(Block));
    return place_precincts(walk, given + HEAD, 1);
}

static int compare_places(const void *a, const void *b)
{
    const Place *one = a, *two = b;
    if (one->y != two->y)
        return one->y < two->y ? -1 : 1;
    if (one->x != two->x)
        return one->x < two->x ? -1 : 1;
    return one->order < two->order ? -1 : one->order > two->order;
}

static void list_precincts(Walk *walk, int64_t component, int64_t resolution)
{
    if (component >= walk->components || resolution > MOST_LEVELS)
        return;
    const int64_t *starts = walk->starts + component * (MOST_LEVELS + 2) + resolution;
    for (int64_t p = starts[0]; p < starts[1]; p++)
        walk->list[walk->list_count++] = p;
}

/* The precincts of one step of the outermost loop of a progression, in the order of the inner loops (T.800 B.12.1). */
static void fill_group(Walk *walk)
{
    const Volume *v = walk->volume + walk->at_volume;
    int64_t step = walk->at_group;
    int64_t r0 = v->r0, r1 = v->r1, c0 = v->c0, c1 = v->c1;
    walk->list_count = 0;
    if (v->progression == 1 || v->progression == 2) {
        r0 += step;
        r1 = r0 + 1;
    } else if (v->progression == 4) {
        c0 += step;
        c1 = c0 + 1;
    }
    if (v->progression == 3) {
        for (int64_t c = c0; c < c1; c++)
            for (int64_t r = r0; r < r1; r++)
                list_precincts(walk, c, r);
    } else {
        for (int64_t r = r0; r < r1; r++)
            for (int64_t c = c0; c < c1; c++)
                list_precincts(walk, c, r);
    }
    if (v->progression >= 2) {
        for (int64_t i = 0; i < walk->list_count; i++) {
            const Precinct *p = walk->precincts + walk->list[i];
            walk->places[i] = (Place){p->y, p->x, i, walk->list[i]};
        }
        /* `order` makes it stable: precincts at one position stay in the order of the inner loops */
        qsort(walk->places, (size_t)walk->list_count, sizeof(Place), compare_places);
        for (int64_t i = 0; i < walk->list_count; i++)
            walk->list[i] = walk->places[i].precinct;
    }
}

static int64_t group_count(const Volume *v)
{
    if (v->progression == 1 || v->progression == 2)
        return larger(0, v->r1 - v->r0);
    return v->progression == 4 ? larger(0, v->c1 - v->c0) : 1;
}

/* Find the next packet that was not read before; return its precinct and layer, or NULL after the last. */
static Precinct *next_packet(Walk *walk, int64_t *layer)
{
    while (walk->at_volume < walk->volumes) {
        const Volume *v = walk->volume + walk->at_volume;
        if (walk->at_group < 0) {
            walk->at_group = 0;
            walk->groups = group_count(v);
            walk->at_entry = 0;
            if (walk->groups)
                fill_group(walk);
        }
        while (walk->at_group < walk->groups) {
            int64_t entries = walk->list_count * v->layers;
            for (; walk->at_entry < entries; walk->at_entry++) {
                int64_t place;
                if (v->progression < 2) {
                    *layer = walk->at_entry / walk->list_count;
                    place = walk->at_entry % walk->list_count;
                } else {
                    place = walk->at_entry / v->layers;
                    *layer = walk->at_entry % v->layers;
                }
                Precinct *precinct = walk->precincts + walk->list[place];
                /* T.800 B.12.2: progressions of POC may overlap; a packet comes with the first of them */
                if (precinct->layers == *layer)
                    return precinct;
            }
            walk->at_group++;
            walk->at_entry = 0;
            if (walk->at_group < walk->groups)
                fill_group(walk);
        }
        walk->at_volume++;
        walk->at_group = -1;
    }
    return NULL;
}

/* Bits of a packet header, most significant first; a byte after 0xFF has seven (T.800 B.10.1). Bytes are taken ahead:
 * `header_end` says how many were needed. */
typedef struct {
    const uint8_t *data;
    int64_t start, next, end;
    uint64_t buffer;         /* its lowest `count` bits were not read yet */
    int count, is_short;
} Bits;

static int bits_of(const Bits *bits, int64_t at) { return at > bits->start && bits->data[at - 1] == 0xFF ? 7 : 8; }

static void fill(Bits *bits)
{
    while (bits->count <= 56 && bits->next < bits->end) {
        int width = bits_of(bits, bits->next);
        bits->buffer = bits->buffer << width | (bits->data[bits->next] & ((1u << width) - 1));
        bits->count += width;
        bits->next++;
    }
}

/* From 1 to 48 bits; zeros after the end. */
static inline uint64_t take(Bits *bits, int count)
{
    if (bits->count < count) {
        fill(bits);
        for (; bits->count < count; bits->count += 8) {
            bits->is_short = 1;
            bits->buffer <<= 8;
        }
    }
    bits->count -= count;
    return bits->buffer >> bits->count & (((uint64_t)1 << count) - 1);
}

static inline int leading_zeros(uint64_t value)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_clzll(value);
#else
    int found = 0;
    for (; !(value >> 63); value <<= 1)
        found++;
    return found;
#endif
}

/* Read zeros up to the next one, which is read, too, but not more than `most`. */
static inline int64_t take_zeros(Bits *bits, int64_t most, int *is_one)
{
    int64_t found = 0;
    *is_one = 0;
    while (found < most) {
        if (bits->count == 0) {
            fill(bits);
            if (bits->count == 0) {
                bits->is_short = 1;
                return most;
            }
        }
        uint64_t left = bits->buffer << (64 - bits->count);
        int run = left ? leading_zeros(left) : bits->count;
        if (run >= most - found) {
            bits->count -= (int)(most - found);
            return most;
        }
        found += run;
        bits->count -= run;
        if (left) {
            bits->count--;
            *is_one = 1;
            return found;
        }
    }
    return found;
}

/* Return the position after the last byte of which a bit was read. */
static int64_t header_end(const Bits *bits)
{
    int64_t stop = bits->next;
    for (int left = bits->count; stop > bits->start && left >= bits_of(bits, stop - 1); stop--)
        left -= bits_of(bits, stop - 1);
    return stop;
}

/* The levels of a tag tree, leaves first: where the nodes of each begin, and how many are in a row. */
typedef struct { int64_t begin[TREE_DEPTH], width[TREE_DEPTH]; int depth; } Levels;

static void place_levels(Levels *levels, int64_t width, int64_t height)
{
    int64_t begin = 0;
    for (levels->depth = 0; levels->depth < TREE_DEPTH;) {
        levels->begin[levels->depth] = begin;
        levels->width[levels->depth++] = width;
        if (width * height <= 1)
            break;
        begin += width * height;
        width = (width + 1) / 2;
        height = (height + 1) / 2;
    }
}

/* Read as much of a tag tree as says whether the value of a leaf is below the threshold; return that (T.800 B.10.2).
 * The value is then `low` of the leaf. */
static inline int reaches(Node *tree, const Levels *levels, int32_t x, int32_t y, int64_t threshold, Bits *bits)
{
    int level = 0;
    Node *node = tree + y * levels->width[0] + x;
    /* no node is known before its parent is, and then it is at least as large: nothing above can say more */
    while (!node->is_known && level + 1 < levels->depth) {
        level++;
        node = tree + levels->begin[level] + (y >> level) * levels->width[level] + (x >> level);
    }
    int64_t low = 0;
    for (;;) {
        if (node->low > low)
            low = node->low;
        if (!node->is_known && low < threshold) {
            int is_one;
            low += take_zeros(bits, threshold - low, &is_one);
            node->is_known = (uint8_t)is_one;
        }
        node->low = (uint16_t)low;
        if (!node->is_known || low >= threshold)
            return 0;
        if (level-- == 0)
            return 1;
        node = tree + levels->begin[level] + (y >> level) * levels->width[level] + (x >> level);
    }
}

/* T.800 table B.4 */
static int64_t read_passes(Bits *bits)
{
    if (!take(bits, 1))
        return 1;
    if (!take(bits, 1))
        return 2;
    int64_t value = (int64_t)take(bits, 2);
    if (value < 3)
        return 3 + value;
    value = (int64_t)take(bits, 5);
    return value < 31 ? 6 + value : 37 + (int64_t)take(bits, 7);
}

static int log_of(int64_t value) { return 63 - leading_zeros((uint64_t)value); }

/* How many more passes the open codeword segment can take after `done` passes (T.800 table D.9, T.814 annex B). */
static int64_t segment_room(int style, int64_t done, int64_t count)
{
    if (style & HT)
        return done ? count : (count - 1) / 3 * 3 + 1;
    if (style & TERMINATE_ALL)
        return 1;
    if (!(style & LAZY))
        return MOST_PASSES;
    if (done < 10)
        return 10 - done;
    int64_t phase = (done - 10) % 3;
    return phase < 2 ? 2 - phase : 1;
}

/* Read what the header says about one included code-block; return its length in this packet, or a negative code. */
static int64_t read_block(Walk *walk, Block *block, uint32_t number, int style, Bits *bits)
{
    int64_t count = read_passes(bits), total = 0;
    while (take(bits, 1) && !bits->is_short)
        if (++block->lblock > 40)
            return -MANY_PASSES;
    if (block->passes + count > MOST_PASSES)
        return -MANY_PASSES;
    int is_segmented = walk->has_table && style & (LAZY | TERMINATE_ALL | HT);
    while (count && !bits->is_short) {
        int64_t room = segment_room(style, block->passes, count), some = smaller(count, room);
        int64_t length = (int64_t)take(bits, block->lblock + log_of(some));
        if (length > UINT32_MAX)
            return -LONG_BODY;
        if (is_segmented) {
            if (!grow((void **)&walk->segments, &walk->segment_room, walk->segment_count, sizeof(Segment)))
                return -NO_MEMORY;
            walk->segments[walk->segment_count++] =
                (Segment){number, (uint32_t)length, (uint16_t)some, block->is_open};
            block->is_open = some < room;
        }
        block->passes = (uint16_t)(block->passes + some);
        count -= some;
        total += length;
    }
    return total > UINT32_MAX ? -LONG_BODY : total;
}

static int has_marker(const uint8_t *data, int64_t at, int64_t end, uint8_t second)
{
    return at + 2 <= end && data[at] == 0xFF && data[at + 1] == second;
}

/* Keep what a packet header may change, so that it can be read again when more bytes are there. */
static int save(Walk *walk, const Precinct *precinct, int is_back)
{
    int64_t nodes = 0, blocks = 0;
    for (int32_t i = 0; i < precinct->count; i++) {
        const Part *part = walk->parts + precinct->parts + i;
        nodes += 2 * part->tree;
        blocks += (int64_t)part->width * part->height;
    }
    if (nodes > walk->saved_room_nodes) {
        Node *more = realloc(walk->saved_nodes, (size_t)nodes * sizeof(Node));
        if (more == NULL)
            return 0;
        walk->saved_nodes = more;
        walk->saved_room_nodes = nodes;
    }
    if (blocks > walk->saved_room_blocks) {
        Block *more = realloc(walk->saved_blocks, (size_t)blocks * sizeof(Block));
        if (more == NULL)
            return 0;
        walk->saved_blocks = more;
        walk->saved_room_blocks = blocks;
    }
    Node *node = walk->saved_nodes;
    Block *block = walk->saved_blocks;
    for (int32_t i = 0; i < precinct->count; i++) {
        const Part *part = walk->parts + precinct->parts + i;
        size_t size = (size_t)(2 * part->tree) * sizeof(Node), row = (size_t)part->width * sizeof(Block);
        if (is_back)
            memcpy(walk->nodes + part->nodes, node, size);
        else
            memcpy(node, walk->nodes + part->nodes, size);
        node += 2 * part->tree;
        for (int32_t y = 0; y < part->height; y++) {
            Block *here = walk->blocks + part->first + y * part->stride;
            if (is_back)
                memcpy(here, block, row);
            else
                memcpy(block, here, row);
            block += part->width;
        }
    }
    return 1;
}

/* Read one packet header at `at` of `data`. Return where it ends, or a negative code. `ranges` of the packet get
 * offsets relative to the begin of its body. */
static int64_t read_header(Walk *walk, Precinct *precinct, int64_t layer, const uint8_t *data, int64_t at, int64_t end,
                           int64_t *length)
{
    *length = 0;
    if (at < 0 || at >= end)
        return -NO_HEADER;
    if (data[at] < 0x80)
        return at + 1; /* T.800 B.10.3: a first bit of 0 is an empty packet */
    Bits bits = {data, at, at, end, 0, 0, 0};
    take(&bits, 1);
    for (int32_t p = 0; p < precinct->count; p++) {
        Part *part = walk->parts + precinct->parts + p;
        Node *inclusion = walk->nodes + part->nodes, *planes = inclusion + part->tree;
        Levels levels;
        place_levels(&levels, part->width, part->height);
        for (int32_t y = 0; y < part->height; y++)
            for (int32_t x = 0; x < part->width; x++) {
                int64_t number = part->first + y * part->stride + x;
                Block *block = walk->blocks + number;
                if (block->lblock) {
                    if (!take(&bits, 1))
                        continue;
                } else {
                    if (!reaches(inclusion, &levels, x, y, layer + 1, &bits))
                        continue;
                    if (!reaches(planes, &levels, x, y, MOST_PLANES, &bits))
                        return bits.is_short ? -NO_HEADER : -MANY_PLANES;
                    block->planes = (uint8_t)planes[(int64_t)y * part->width + x].low;
                    block->lblock = 3;
                }
                int64_t some = read_block(walk, block, (uint32_t)number, precinct->style, &bits);
                if (bits.is_short)
                    return -NO_HEADER;
                if (some < 0)
                    return some;
                if (some && walk->has_table) {
                    if (!grow((void **)&walk->ranges, &walk->range_room, walk->range_count, sizeof(Range)))
                        return -NO_MEMORY;
                    walk->ranges[walk->range_count++] = (Range){(uint32_t)number, (uint32_t)some, *length};
                }
                *length += some;
            }
    }
    if (bits.is_short)
        return -NO_HEADER;
    int64_t stop = header_end(&bits);
    if (data[stop - 1] == 0xFF)
        stop++; /* one stuffed byte follows a last 0xFF */
    return stop;
}

static int is_whole_layers(const Walk *walk)
{
    for (int64_t i = 0; i < walk->precinct_count; i++)
        if (walk->precincts[i].layers < 1 || walk->precincts[i].layers != walk->precincts[0].layers)
            return 0;
    return 1;
}

/* Walk as far as the bytes reach. `data` are `length` bytes of the body from `base` on; `headers` are all packet
 * headers, if they are separate. On MORE, bytes from `*value` on are needed, more than were there. */
static int walk_on(Walk *walk, const uint8_t *data, int64_t length, int64_t base, const uint8_t *headers,
                   int64_t header_length, int64_t *value)
{
    int is_separate = (walk->flags & HAS_HEADERS) != 0;
    int64_t layer;
    Precinct *precinct;
    while ((precinct = next_packet(walk, &layer)) != NULL) {
        int64_t body = walk->position;
        if (body == walk->total && (!is_separate || walk->header_position == header_length) && is_whole_layers(walk))
            return DONE;
        *value = body;
        int is_all = base + length >= walk->total;
        if (walk->flags & HAS_SOP && body < walk->total) {
            if (body < base || (body + 6 > base + length && !is_all))
                return MORE;
            if (has_marker(data, body - base, length, 0x91))
                body += 6;
        }
        const uint8_t *source = is_separate ? headers : data;
        int64_t at = is_separate ? walk->header_position : body - base;
        int64_t end = is_separate ? header_length : length;
        int is_complete = is_separate || is_all;
        if (!is_separate && body < walk->total && (body < base || body >= base + length))
            return MORE;
        int64_t ranges = walk->range_count, segments = walk->segment_count, some;
        if (!is_complete && !save(walk, precinct, 0))
            return NO_MEMORY;
        int64_t stop = read_header(walk, precinct, layer, source, at, end, &some);
        int is_short = stop == -NO_HEADER
            || (stop > 0 && !is_complete && stop + (walk->flags & HAS_EPH ? 2 : 0) > end);
        if (is_short && !is_complete) {
            walk->range_count = ranges;
            walk->segment_count = segments;
            save(walk, precinct, 1);
            return MORE;
        }
        if (stop < 0)
            return (int)-stop;
        if (walk->flags & HAS_EPH) { /* T.800 table A.13: EPH shall be used, while SOP may be */
            if (!has_marker(source, stop, end, 0x92))
                return NO_EPH;
            stop += 2;
        }
        if (is_separate)
            walk->header_position = stop;
        else
            body = base + stop;
        if (some > walk->total - body)
            return LONG_BODY;
        for (int64_t i = ranges; i < walk->range_count; i++)
            walk->ranges[i].offset += body;
        walk->position = body + some;
        precinct->layers++;
        walk->packets++;
    }
    return DONE;
}

static const char CAPSULE[] = "anychunk.packet_walk";

static void destroy(PyObject *capsule) { walk_free(PyCapsule_GetPointer(capsule, CAPSULE)); }

PyObject *walk_begin(PyObject *module, PyObject *args)
{
    PyObject *given;
    Py_buffer view;
    const char *problem = NULL;
    if (!PyArg_ParseTuple(args, "O", &given) || PyObject_GetBuffer(given, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    /* copied, because the buffer need not be aligned */
    int64_t count = view.len / 8;
    int64_t *numbers = malloc((size_t)(count + 1) * sizeof(int64_t));
    Walk *walk = NULL;
    if (numbers != NULL) {
        memcpy(numbers, view.buf, (size_t)count * sizeof(int64_t));
        Py_BEGIN_ALLOW_THREADS
        walk = walk_new(numbers, count, 1, &problem);
        if (walk != NULL && !walk_place(walk, numbers, numbers + 1, numbers[7], &problem)) {
            walk_free(walk);
            walk = NULL;
        }
        Py_END_ALLOW_THREADS
        free(numbers);
    }
    PyBuffer_Release(&view);
    if (walk == NULL && problem != NULL) {
        PyErr_SetString(PyExc_ValueError, problem);
        return NULL;
    }
    if (walk == NULL)
        return PyErr_NoMemory();
    PyObject *capsule = PyCapsule_New(walk, CAPSULE, destroy);
    if (capsule == NULL)
        walk_free(walk);
    return capsule;
}

PyObject *walk_resume(PyObject *module, PyObject *args)
{
    PyObject *capsule, *data, *headers;
    long long base, value = 0;
    if (!PyArg_ParseTuple(args, "OOLO", &capsule, &data, &base, &headers))
        return NULL;
    Walk *walk = PyCapsule_GetPointer(capsule, CAPSULE);
    Py_buffer body, apart;
    if (walk == NULL || PyObject_GetBuffer(data, &body, PyBUF_SIMPLE) < 0)
        return NULL;
    if (PyObject_GetBuffer(headers, &apart, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&body);
        return NULL;
    }
    int code;
    int64_t needed = 0;
    Py_BEGIN_ALLOW_THREADS
    code = walk_on(walk, body.buf, body.len, base, apart.buf, apart.len, &needed);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&body);
    PyBuffer_Release(&apart);
    value = needed;
    return Py_BuildValue("iLLL", code, (long long)walk->position, (long long)walk->packets, value);
}

/* Return a new bytes object of `count` elements of `size` bytes, and where to write them. */
static PyObject *new_bytes(int64_t count, int64_t size, void **memory)
{
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * size));
    *memory = made == NULL ? NULL : PyBytes_AsString(made);
    return made;
}

/* Code-blocks by number, with their ranges and segments sorted by code-block, each in the order of the stream. */
PyObject *walk_finish(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    if (!PyArg_ParseTuple(args, "O", &capsule))
        return NULL;
    Walk *walk = PyCapsule_GetPointer(capsule, CAPSULE);
    if (walk == NULL)
        return NULL;
    int64_t blocks = walk->block_count, ranges = walk->range_count, segments = 0;
    for (int64_t i = 0; i < walk->segment_count; i++)
        segments += !walk->segments[i].is_more;
    void *memory[8];
    PyObject *made[8] = {0};
    const int64_t sizes[8][2] = {{blocks, 1}, {blocks, 2}, {blocks + 1, 4}, {ranges, 8}, {ranges, 4},
                                 {walk->is_segmented ? blocks + 1 : 0, 4}, {segments, 2}, {segments, 4}};
    for (int i = 0; i < 8; i++)
        if ((made[i] = new_bytes(sizes[i][0], sizes[i][1], &memory[i])) == NULL) {
            while (i--)
                Py_DECREF(made[i]);
            return NULL;
        }
    uint8_t *planes = memory[0];
    uint16_t *passes = memory[1], *segment_passes = memory[6];
    uint32_t *starts = memory[2], *lengths = memory[4], *segment_starts = memory[5], *segment_lengths = memory[7];
    int64_t *offsets = memory[3];
    memset(starts, 0, (size_t)(blocks + 1) * 4);
    for (int64_t i = 0; i < blocks; i++) {
        const Block *block = walk->blocks + i;
        planes[i] = block->lblock ? block->planes : 255;
        passes[i] = block->passes;
    }
    /* counting sort: starts[n] is where the next entry of block n goes, and in the end where those of n + 1 begin */
    for (int64_t i = 0; i < ranges; i++)
        starts[walk->ranges[i].block + 1]++;
    for (int64_t i = 0; i < blocks; i++)
        starts[i + 1] += starts[i];
    for (int64_t i = 0; i < ranges; i++) {
        uint32_t at = starts[walk->ranges[i].block]++;
        offsets[at] = walk->ranges[i].offset;
        lengths[at] = walk->ranges[i].length;
    }
    memmove(starts + 1, starts, (size_t)blocks * 4);
    starts[0] = 0;
    if (walk->is_segmented) {
        memset(segment_starts, 0, (size_t)(blocks + 1) * 4);
        for (int64_t i = 0; i < walk->segment_count; i++)
            if (!walk->segments[i].is_more)
                segment_starts[walk->segments[i].block + 1]++;
        for (int64_t i = 0; i < blocks; i++)
            segment_starts[i + 1] += segment_starts[i];
        for (int64_t i = 0; i < walk->segment_count; i++) {
            const Segment *segment = walk->segments + i;
            uint32_t *next = segment_starts + segment->block;
            if (segment->is_more) {
                segment_passes[*next - 1] = (uint16_t)(segment_passes[*next - 1] + segment->passes);
                segment_lengths[*next - 1] += segment->length;
            } else {
                segment_passes[*next] = segment->passes;
                segment_lengths[(*next)++] = segment->length;
            }
        }
        memmove(segment_starts + 1, segment_starts, (size_t)blocks * 4);
        segment_starts[0] = 0;
    }
    return Py_BuildValue("NNNNNNNN", made[0], made[1], made[2], made[3], made[4], made[5], made[6], made[7]);
}

/* Walk one tile of `walk_all`; return whether it consists of exactly its packets, and perhaps zeros after them. */
static int is_exact(Walk *walk, const int64_t *numbers, const int64_t *tile, const uint8_t *data, int64_t length)
{
    int64_t offset = tile[4], total = tile[5];
    if (offset < 0 || total < 0 || offset > length || total > length - offset || walk->flags & HAS_HEADERS)
        return 0;
    for (int i = 0; i < 4; i++)
        if (!is_inside(tile[i], 0, HIGHEST))
            return 0;
    const char *problem;
    if (!walk_place(walk, numbers, tile, total, &problem))
        return 0;
    int64_t needed;
    int is_done = walk_on(walk, data + offset, total, 0, NULL, 0, &needed) == DONE;
    for (int64_t rest = walk->position; is_done && rest < total; rest++)
        is_done = data[offset + rest] == 0;
    return is_done;
}

int is_exact_tile(const void *given, int64_t size, const int64_t *tile, const uint8_t *data, int64_t length)
{
    /* copied, because the parameters need not be aligned */
    int64_t *numbers = malloc((size_t)size + 1);
    if (numbers == NULL)
        return 0;
    memcpy(numbers, given, (size_t)size);
    const char *problem;
    Walk *walk = walk_new(numbers, size / 8, 0, &problem);
    int found = walk != NULL && is_exact(walk, numbers, tile, data, length);
    walk_free(walk);
    free(numbers);
    return found;
}

/* Walk tiles that are coded alike: `tiles` has for each x0, y0, x1, y1, and where its packets are in `data`, as offset
 * and length. Return how many are exactly their packets, up to the first that is not or that cannot be walked. */
PyObject *walk_all(PyObject *module, PyObject *args)
{
    Py_buffer given, data, tiles;
    if (!PyArg_ParseTuple(args, "y*y*y*", &given, &data, &tiles))
        return NULL;
    int64_t count = given.len / 8, all = tiles.len / (8 * PER_TILE), good = 0;
    int64_t *numbers = malloc((size_t)(count + 8) * sizeof(int64_t));
    if (numbers != NULL) {
        Py_BEGIN_ALLOW_THREADS
        memset(numbers, 0, (size_t)(count + 8) * sizeof(int64_t));
        memcpy(numbers, given.buf, (size_t)count * sizeof(int64_t));
        const char *problem;
        Walk *walk = walk_new(numbers, count, 0, &problem);
        for (; walk != NULL && good < all; good++) {
            int64_t tile[PER_TILE];
            memcpy(tile, (const char *)tiles.buf + good * (int64_t)sizeof tile, sizeof tile);
            if (!is_exact(walk, numbers, tile, data.buf, data.len))
                break;
        }
        walk_free(walk);
        Py_END_ALLOW_THREADS
        free(numbers);
    }
    PyBuffer_Release(&given);
    PyBuffer_Release(&data);
    PyBuffer_Release(&tiles);
    return PyLong_FromLongLong(good);
}
