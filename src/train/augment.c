/* Images varied for training. Random bits are Philox of the seed and the position: nothing is
 * remembered from one image to the next. */
#include "train/data.h"

#include <string.h>

enum { CROP, FLIP, CUTOUT, COLOR }; /* streams of an item */

typedef struct bits {
    uint32_t words[4];
} bits;

static bits draw(uint64_t seed, uint64_t position, unsigned stream)
{
    bits b;
    gsi_philox(b.words, seed ^ 0xA6E17, position << 2 | stream);
    return b;
}

/* 0 to n - 1 */
static size_t below(uint32_t word, size_t n) { return (size_t)((uint64_t)word * n >> 32); }

/* Pixel (y, x) comes from (y + dy, x + dx), mirrored if so wanted. */
static void move_pixels(float *to, const float *from, int32_t *classes, const int32_t *before,
                        const gs_data_info *i, ptrdiff_t dy, ptrdiff_t dx, bool flip)
{
    const size_t bytes = i->channels * sizeof *to;
    for (size_t y = 0; y < i->height; y++)
        for (size_t x = 0; x < i->width; x++, to += i->channels) {
            const ptrdiff_t column = (ptrdiff_t)(flip ? i->width - 1 - x : x);
            const size_t sy = (size_t)((ptrdiff_t)y + dy), sx = (size_t)(column + dx);
            const bool inside = sy < i->height && sx < i->width; /* a negative one is large */
            if (inside)
                memcpy(to, from + (sy * i->width + sx) * i->channels, bytes);
            else
                memset(to, 0, bytes);
            if (classes)
                classes[y * i->width + x] = inside ? before[sy * i->width + sx] : -1;
        }
}

static void cut_out(float *x, const gs_data_info *i, size_t side, const bits *b)
{
    const size_t cy = below(b->words[0], i->height), cx = below(b->words[1], i->width);
    const size_t y0 = cy > side / 2 ? cy - side / 2 : 0, x0 = cx > side / 2 ? cx - side / 2 : 0;
    const size_t y1 = gsi_min_size(cy + side - side / 2, i->height);
    const size_t x1 = gsi_min_size(cx + side - side / 2, i->width);
    for (size_t y = y0; y < y1; y++)
        memset(x + (y * i->width + x0) * i->channels, 0, (x1 - x0) * i->channels * sizeof *x);
}

/* -1 to 1, exact in f32. */
static float signed_unit(uint32_t word)
{
    return (float)((int32_t)(word >> 8) - (1 << 23)) * 0x1p-23f;
}

static void recolor(float *x, const gs_data_info *i, float most, uint64_t seed, uint64_t position)
{
    for (size_t c = 0; c < i->channels; c++) {
        /* two words a channel: blocks of their own from the third channel on */
        const bits b = draw(seed + (c >> 1), position, COLOR);
        const float gain = 1 + most * signed_unit(b.words[2 * (c & 1)]);
        const float offset = most * signed_unit(b.words[2 * (c & 1) + 1]);
        for (size_t p = c; p < i->height * i->width * i->channels; p += i->channels)
            x[p] = x[p] * gain + offset;
    }
}

void gsi_augment(float *x, int32_t *targets, const gs_data_info *info, const gs_augment *how,
                 uint64_t seed, uint64_t position, void *work)
{
    const size_t pixels = info->height * info->width;
    bool flip = false;
    ptrdiff_t dy = 0, dx = 0;
    if (how->color > 0)
        recolor(x, info, how->color, seed, position);
    if (how->crop > 0) {
        const bits b = draw(seed, position, CROP);
        dy = (ptrdiff_t)below(b.words[0], 2 * how->crop + 1) - (ptrdiff_t)how->crop;
        dx = (ptrdiff_t)below(b.words[1], 2 * how->crop + 1) - (ptrdiff_t)how->crop;
    }
    if (how->flip)
        flip = draw(seed, position, FLIP).words[0] >> 31;
    if (flip || dy != 0 || dx != 0) {
        float *from = work;
        int32_t *before = (int32_t *)(from + pixels * info->channels);
        memcpy(from, x, pixels * info->channels * sizeof *x);
        if (targets)
            memcpy(before, targets, pixels * sizeof *targets);
        move_pixels(x, from, targets, before, info, dy, dx, flip);
    }
    if (how->cutout > 0) {
        const bits b = draw(seed, position, CUTOUT);
        cut_out(x, info, how->cutout, &b);
    }
}
