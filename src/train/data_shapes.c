/* Shapes: one to three discs, squares or triangles on noise, and the class of every pixel. Item i
 * is a function of seed, split and i: it is drawn when it is read, and there is no last one. */
#include "train/data.h"

#include <math.h>
#include <string.h>

enum { SIDE = 32, VALID_ITEMS = 1024, MOST_SHAPES = 3 };
static const float NOISE = 0.25f; /* its deviation: a shape is 1, what lies behind it 0 */
enum { BACKGROUND, DISC, SQUARE, TRIANGLE, CLASSES };

typedef struct shapes {
    uint64_t keys[GS_SPLIT_COUNT]; /* of the random streams: no item is in both splits */
} shapes;

/* ---- random numbers: SplitMix64 (Steele et al. 2014), begun anew for each item ---- */

static uint64_t bits(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static float uniform(uint64_t *state, float low, float high)
{
    return low + (high - low) * (float)(bits(state) >> 40) * 0x1p-24f;
}

/* Mean 0, variance 1: four numbers of 16 bits, close to normal. */
static float noise(uint64_t *state)
{
    const uint64_t b = bits(state);
    const int sum = (int)(b & 0xFFFF) + (int)(b >> 16 & 0xFFFF) + (int)(b >> 32 & 0xFFFF) +
                    (int)(b >> 48) - 2 * 65535;
    return (float)sum * (1.7320508f * 0x1p-16f);
}

/* ---- drawing ---- */

typedef struct figure {
    int class;
    float x, y, radius; /* of the circle around it, in pixels */
} figure;

static bool covers(const figure *f, float x, float y)
{
    const float dx = x - f->x, dy = y - f->y, r = f->radius;
    if (f->class == DISC)
        return dx * dx + dy * dy <= r * r;
    if (f->class == SQUARE)
        return fabsf(dx) <= 0.7071068f * r && fabsf(dy) <= 0.7071068f * r;
    /* its point above, its base half a radius below: 3/2 r high */
    return dy <= 0.5f * r && dy >= -r && fabsf(dx) <= 0.5773503f * (dy + r);
}

static void draw(float *image, int32_t *targets, const figure *f)
{
    const int r = (int)f->radius + 1;
    for (int y = (int)f->y - r; y <= (int)f->y + r; y++)
        for (int x = (int)f->x - r; x <= (int)f->x + r; x++)
            if (x >= 0 && y >= 0 && x < SIDE && y < SIDE && covers(f, (float)x, (float)y)) {
                image[y * SIDE + x] = 1;
                targets[y * SIDE + x] = f->class;
            }
}

static gs_status read_item(const gs_data *data, gs_split split, uint64_t item, float *x,
                           int32_t *ids, int32_t *targets, gs_error *error)
{
    const shapes *s = data->state;
    uint32_t block[4];
    (void)ids;
    (void)error;
    gsi_philox(block, s->keys[split], item);
    uint64_t state = (uint64_t)block[0] << 32 | block[1];
    memset(targets, 0, SIDE * SIDE * sizeof *targets);
    memset(x, 0, SIDE * SIDE * sizeof *x);
    const int count = 1 + (int)(bits(&state) % MOST_SHAPES);
    for (int i = 0; i < count; i++) {
        const figure f = {.class = DISC + (int)(bits(&state) % 3),
                          .x = uniform(&state, 4, SIDE - 4),
                          .y = uniform(&state, 4, SIDE - 4),
                          .radius = uniform(&state, 4, 8)};
        draw(x, targets, &f);
    }
    for (int i = 0; i < SIDE * SIDE; i++)
        x[i] += NOISE * noise(&state);
    return GS_OK;
}

/* ---- the kind ---- */

static gs_status open_shapes(gs_data *data, const gs_data_config *config, gs_error *error)
{
    shapes *s = data->state;
    (void)error;
    for (uint64_t split = 0; split < GS_SPLIT_COUNT; split++) {
        uint32_t block[4];
        gsi_philox(block, config->seed, split);
        s->keys[split] = (uint64_t)block[0] << 32 | block[1];
    }
    data->info.task = GS_TASK_PIXELS;
    data->info.height = data->info.width = SIDE;
    data->info.channels = 1;
    data->info.classes = CLASSES;
    data->info.items[GS_SPLIT_TRAIN] = UINT64_MAX;
    data->info.items[GS_SPLIT_VALID] = VALID_ITEMS;
    return GS_OK;
}

static void close_shapes(gs_data *data) { (void)data; }

const gsi_kind gsi_shapes = {.name = "shapes",
                             .state = sizeof(shapes),
                             .open = open_shapes,
                             .read = read_item,
                             .close = close_shapes};
