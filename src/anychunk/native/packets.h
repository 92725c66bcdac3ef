/* The walk over the packets of a tile, for the other files of the module. */
#ifndef ANYCHUNK_PACKETS_H
#define ANYCHUNK_PACKETS_H

#include <stdint.h>

enum { PER_TILE = 6 };

/* Return whether a tile consists of exactly its packets, and perhaps zeros after them. `given` are `size` bytes of
 * parameters; `tile` are x0, y0, x1, y1, and where its packets are in `data`, as offset and length. */
int is_exact_tile(const void *given, int64_t size, const int64_t *tile, const uint8_t *data, int64_t length);

#endif
