/* Any bytes as PNG or JPEG: refused, or an image of the size that was announced; its memory is no
 * more than deflate, at a bit per pixel, can make of the bytes. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "io/image.h"

enum { MOST_OF_BYTE = 3 * 8 * 1032, PLENTY = 1 << 22 };

static size_t length;

static void *in_proportion(void *user, void *block, size_t old_size, size_t size)
{
    (void)user, (void)old_size;
    if (size > 4096 + MOST_OF_BYTE * (length + 1))
        abort();
    if (size == 0 || size > PLENTY) { /* large ones take long; as if there were no memory */
        free(block);
        return NULL;
    }
    return realloc(block, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *const path = file_of(data, n);
    const gs_alloc alloc = {in_proportion, NULL};
    gsi_image8 looked, image;
    gs_error error = {0};
    gsi_heap heap;
    length = n;
    gsi_heap_init(&heap, &alloc);
    const gs_status seen = gsi_image_look(&looked, path, &heap, &error);
    const size_t channels = n % 3 == 2 ? 3 : n % 3;
    if (gsi_image_read(&image, path, channels, n % 2, &heap, &error) == GS_OK) {
        const size_t size = image.height * image.width * image.channels;
        if (seen != GS_OK || looked.height != image.height || looked.width != image.width)
            abort();
        unsigned sum = 0; /* every pixel was written */
        for (size_t i = 0; i < size; i++)
            sum += image.data[i];
        if (sum == 1)
            putchar(' ');
        gsi_free(&heap, image.data);
    } else if (!error.text[0]) {
        abort();
    }
    if (heap.bytes != 0)
        abort();
    return 0;
}
