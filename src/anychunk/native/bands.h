/* Separating interleaved samples, for the other files of the module. */
#ifndef ANYCHUNK_BANDS_H
#define ANYCHUNK_BANDS_H

#include <stdint.h>

enum { MOST_BANDS = 4, VECTOR = 16 };

/* masks[k][v]: which bytes of vector v of a group of pixels are in the vector of band k, and where */
typedef struct { uint8_t masks[MOST_BANDS][MOST_BANDS][VECTOR]; } Masks;

/* For samples of `size` bytes (1, 2, 4 or 8) in at most MOST_BANDS bands. */
void fill_masks(Masks *masks, int bands, int size, int is_swapped);

/* Return the best instructions that this processor has: 0 none, 1 SSSE3 or NEON, 2 AVX2. */
int best_kind(void);

/* Copy one row of pixels to the rows `to` of its bands, with instructions of at most the kind `best`. */
void copy_row(const uint8_t *from, uint8_t *const *to, int64_t pixels, int size, int bands, int is_swapped,
              const Masks *masks, int best);

#endif
