/* Both libraries report errors by a jump out of their calls: each decoder is one function, whose
 * locals that live across the jump are volatile or in a struct. Warnings are passed over: an image
 * that the library can show is an image.
 *
 * A file is read whole before it is decoded, and its header is looked at before memory for pixels
 * is asked for: 16384 pixels a side, 2^26 in all. */
#include "io/image.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

enum { MOST_BYTES = 1 << 28, DEFLATE = 1032 }; /* bytes that deflate makes of one, at most */
enum { MOST_SCANS = 100 }; /* of a JPEG: each costs a pass over the image, and few bytes */

typedef struct bytes {
    uint8_t *data;
    size_t n, at;
} bytes;

static bool is_png(const uint8_t *p) { return memcmp(p, "\x89PNG", 4) == 0; }
static bool is_jpeg(const uint8_t *p) { return p[0] == 0xFF && p[1] == 0xD8 && p[2] == 0xFF; }

bool gsi_image_begins(const uint8_t start[4]) { return is_png(start) || is_jpeg(start); }

bool gsi_image_name(const char *path)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG"};
    const size_t n = strlen(path);
    for (size_t i = 0; i < GSI_COUNT(ends); i++)
        if (n > strlen(ends[i]) && strcmp(path + n - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

/* The libraries refuse images without pixels. */
static gs_status check_size(const gsi_file *file, size_t height, size_t width, gs_error *error)
{
    if (height <= GSI_IMAGE_SIDE && width <= GSI_IMAGE_SIDE && height * width <= GSI_IMAGE_PIXELS)
        return GS_OK;
    return gsi_file_fail(file, error, GS_ESIZE,
                         "is an image of %zu x %zu: at most %d a side and %d pixels in all", width,
                         height, (int)GSI_IMAGE_SIDE, (int)GSI_IMAGE_PIXELS);
}

static gs_status new_pixels(gsi_image8 *out, const gsi_file *file, gsi_heap *heap, gs_error *error)
{
    out->data = gsi_new(heap, out->height * out->width * out->channels);
    return out->data ? GS_OK
                     : gsi_file_fail(file, error, GS_ENOMEM, "there is no memory for its pixels");
}

/* What a decoder works on. */
typedef struct decoder {
    const gsi_file *file;
    bytes in;
    gsi_image8 *out;
    size_t channels;
    bool exact, look;
    bool no_memory; /* the library asked for some, and there was none */
    gsi_heap *heap;
    gs_error *error;
    gs_status status;
    jmp_buf failed;
    char message[160];
} decoder;

/* What the message of a library comes to. */
static gs_status damaged(const decoder *d)
{
    return d->no_memory
               ? gsi_file_fail(d->file, d->error, GS_ENOMEM, "there is no memory to decode it")
               : gsi_file_fail(d->file, d->error, GS_EFORMAT, "is damaged: %s", d->message);
}

/* ---- PNG ---- */

static void *png_new(png_structp png, png_alloc_size_t n)
{
    decoder *d = png_get_mem_ptr(png);
    void *block = gsi_new(d->heap, n);
    d->no_memory |= !block;
    return block;
}

static void png_release(png_structp png, void *block)
{
    gsi_free(((decoder *)png_get_mem_ptr(png))->heap, block);
}

static void png_read(png_structp png, png_bytep to, png_size_t n)
{
    bytes *b = png_get_io_ptr(png);
    if (n > b->n - b->at)
        png_error(png, "it is cut short");
    memcpy(to, b->data + b->at, n);
    b->at += n;
}

static void png_failed(png_structp png, png_const_charp message)
{
    decoder *d = png_get_error_ptr(png);
    snprintf(d->message, sizeof d->message, "%s", message);
    longjmp(d->failed, 1);
}

static void png_warned(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* 8 bits, no alpha, no palette unless its indices are wanted, 1 or 3 channels. */
static void png_transform(png_structp png, png_infop info, decoder *d)
{
    const int color = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
    if (depth == 16)
        png_set_strip_16(png);
    png_set_strip_alpha(png); /* that of a palette, too */
    if (d->exact) {
        if (depth < 8)
            png_set_packing(png);
        return;
    }
    if (color == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(png);
    if (color == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    const bool grey = color == PNG_COLOR_TYPE_GRAY || color == PNG_COLOR_TYPE_GRAY_ALPHA;
    if (grey && d->channels == 3)
        png_set_gray_to_rgb(png);
    if (!grey && d->channels == 1)
        png_set_rgb_to_gray(png, PNG_ERROR_ACTION_NONE, -1, -1);
}

static void decode_png(decoder *d, png_structp png, png_infop info)
{
    /* unpacked and kept they take a thousand times their bytes, and show nothing */
    static const png_byte unread[] = "tEXt\0zTXt\0iTXt\0sPLT";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, unread, sizeof unread / 5);
    png_set_read_fn(png, &d->in, png_read);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* check_size says it better */
    png_set_chunk_malloc_max(png, 1 << 24);
    png_read_info(png, info);
    gsi_image8 *out = d->out;
    out->height = png_get_image_height(png, info);
    out->width = png_get_image_width(png, info);
    d->status = check_size(d->file, out->height, out->width, d->error);
    if (d->status == GS_OK && d->exact && png_get_bit_depth(png, info) > 8)
        d->status = gsi_file_fail(d->file, d->error, GS_EFORMAT,
                                  "has 16 bits per pixel: a mask has 8 or fewer");
    if (d->status != GS_OK)
        return;
    png_transform(png, info, d);
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    out->channels = png_get_channels(png, info);
    if (d->look)
        return;
    if (out->height * out->width / 8 / DEFLATE > d->in.n) /* a pixel has a bit or more */
        png_error(png, "it announces more pixels than its bytes can hold");
    if (png_get_bit_depth(png, info) != 8 || /* uncovered: then png_transform would be wrong */
        (out->channels != 1 && out->channels != 3)) /* uncovered: the same */
        png_error(png, "its pixels are of a strange kind");
    d->status = new_pixels(out, d->file, d->heap, d->error);
    for (int pass = 0; d->status == GS_OK && pass < passes; pass++)
        for (size_t y = 0; y < out->height; y++)
            png_read_row(png, out->data + y * out->width * out->channels, NULL);
    if (d->status == GS_OK)
        png_read_end(png, NULL);
}

static void run_png(decoder *d)
{
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, d, png_failed, png_warned, d,
                                               png_new, png_release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    if (!info)
        d->status = damaged(d);
    else if (setjmp(d->failed) == 0)
        decode_png(d, png, info);
    else
        d->status = damaged(d);
    png_destroy_read_struct(&png, &info, NULL);
}

/* ---- JPEG ---- */

typedef struct jpeg_errors {
    struct jpeg_error_mgr base;
    decoder *d;
} jpeg_errors;

static void jpeg_failed(j_common_ptr jpeg)
{
    decoder *d = ((jpeg_errors *)jpeg->err)->d;
    char text[JMSG_LENGTH_MAX];
    jpeg->err->format_message(jpeg, text);
    snprintf(d->message, sizeof d->message, "%.150s", text);
    const int code = jpeg->err->msg_code; /* the other: more than max_memory_to_use */
    d->no_memory = code == JERR_OUT_OF_MEMORY || code == JERR_NO_BACKING_STORE;
    longjmp(d->failed, 1);
}

/* A scan that ends early is damage: the library would fill the rest with grey. */
static void jpeg_warned(j_common_ptr jpeg, int level)
{
    if (level < 0)
        jpeg_failed(jpeg);
}

typedef struct jpeg_watch {
    struct jpeg_progress_mgr base;
    decoder *d;
} jpeg_watch;

static void jpeg_watched(j_common_ptr jpeg)
{
    decoder *d = ((jpeg_watch *)jpeg->progress)->d;
    if (((j_decompress_ptr)jpeg)->input_scan_number <= MOST_SCANS)
        return;
    snprintf(d->message, sizeof d->message, "it has more than %d scans", MOST_SCANS);
    longjmp(d->failed, 1);
}

/* A row of CMYK to RGB or grey, as Pillow does it; Adobe's files hold 255 less the ink. */
static void print_colors(uint8_t *to, const uint8_t *inks, size_t width, size_t channels,
                         bool adobe)
{
    for (size_t x = 0; x < width; x++, inks += 4, to += channels) {
        const unsigned light = adobe ? inks[3] : 255u - inks[3];
        unsigned rgb[3];
        for (int c = 0; c < 3; c++) {
            const unsigned part = (adobe ? 255u - inks[c] : inks[c]) * light + 128;
            rgb[c] = light - ((part + (part >> 8)) >> 8);
        }
        for (size_t c = 0; channels == 3 && c < 3; c++)
            to[c] = (uint8_t)rgb[c];
        if (channels == 1)
            to[0] = (uint8_t)((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
    }
}

static void decode_jpeg(decoder *d, struct jpeg_decompress_struct *jpeg, jpeg_watch *watch)
{
    gsi_image8 *out = d->out;
    jpeg_create_decompress(jpeg);
    jpeg->progress = &watch->base;
    jpeg->mem->max_memory_to_use = 1 << 28;
    jpeg_mem_src(jpeg, d->in.data, (unsigned long)d->in.n);
    jpeg_read_header(jpeg, TRUE);
    out->height = jpeg->image_height;
    out->width = jpeg->image_width;
    d->status = check_size(d->file, out->height, out->width, d->error);
    if (d->status != GS_OK)
        return;
    out->channels = d->channels ? d->channels : jpeg->num_components == 1 ? 1 : 3;
    const bool inks = jpeg->num_components == 4;
    jpeg->out_color_space = inks ? JCS_CMYK : out->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->dct_method = JDCT_ISLOW; /* the same bits in every build of the library */
    if (d->look)
        return;
    /* a block of 8 x 8 has a bit or more; arithmetic coding, which nobody uses, could do better */
    if (out->height * out->width / 1024 > d->in.n)
        d->status = gsi_file_fail(d->file, d->error, GS_EFORMAT,
                                  "is damaged: it announces more "
                                  "pixels than its bytes can hold");
    else
        d->status = new_pixels(out, d->file, d->heap, d->error);
    if (d->status != GS_OK)
        return;
    jpeg_start_decompress(jpeg);
    JSAMPROW printed = NULL; /* of the library's memory, which a jump frees too */
    if (inks)
        printed = jpeg->mem->alloc_large((j_common_ptr)jpeg, JPOOL_IMAGE, 4 * out->width);
    while (jpeg->output_scanline < jpeg->output_height) {
        uint8_t *to = out->data + jpeg->output_scanline * out->width * out->channels;
        JSAMPROW row = inks ? printed : to;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (inks)
            print_colors(to, row, out->width, out->channels, jpeg->saw_Adobe_marker);
    }
    jpeg_finish_decompress(jpeg);
}

static void run_jpeg(decoder *d)
{
    struct jpeg_decompress_struct jpeg;
    jpeg_errors errors = {.d = d};
    jpeg_watch watch = {.base.progress_monitor = jpeg_watched, .d = d};
    memset(&jpeg, 0, sizeof jpeg);
    jpeg.err = jpeg_std_error(&errors.base);
    errors.base.error_exit = jpeg_failed;
    errors.base.emit_message = jpeg_warned;
    if (setjmp(d->failed) == 0)
        decode_jpeg(d, &jpeg, &watch);
    else
        d->status = damaged(d);
    jpeg_destroy_decompress(&jpeg);
}

/* ---- files ---- */

static gs_status read_image(gsi_image8 *out, const char *path, size_t channels, bool exact,
                            bool look, gsi_heap *heap, gs_error *error)
{
    gsi_file file;
    *out = (gsi_image8){0};
    gs_status status = gsi_file_open(&file, path, error);
    if (status != GS_OK)
        return status;
    decoder d = {.file = &file,
                 .out = out,
                 .channels = channels,
                 .exact = exact,
                 .look = look,
                 .heap = heap,
                 .error = error};
    if (file.size > MOST_BYTES || file.size < 4)
        status = gsi_file_fail(&file, error, GS_ESIZE, "has %llu byte%s, and is no image",
                               (unsigned long long)file.size, file.size == 1 ? "" : "s");
    d.in.n = (size_t)file.size;
    if (status == GS_OK && !(d.in.data = gsi_new(heap, d.in.n)))
        status = gsi_file_fail(&file, error, GS_ENOMEM, "there is no memory for its bytes");
    if (status == GS_OK)
        status = gsi_file_read(&file, d.in.data, d.in.n, 0, error);
    if (status == GS_OK) {
        if (is_png(d.in.data))
            run_png(&d);
        else if (is_jpeg(d.in.data) && exact)
            d.status = gsi_file_fail(&file, error, GS_EFORMAT,
                                     "is a JPEG, whose values are not exact: a mask is a PNG");
        else if (is_jpeg(d.in.data))
            run_jpeg(&d);
        else
            d.status = gsi_file_fail(&file, error, GS_EFORMAT, "is neither PNG nor JPEG");
        status = d.status;
    }
    gsi_free(heap, d.in.data);
    gsi_file_close(&file);
    if (status != GS_OK || look) {
        gsi_free(heap, out->data);
        out->data = NULL;
    }
    return status;
}

gs_status gsi_image_look(gsi_image8 *out, const char *path, gsi_heap *heap, gs_error *error)
{
    return read_image(out, path, 0, false, true, heap, error);
}

gs_status gsi_image_read(gsi_image8 *out, const char *path, size_t channels, bool exact,
                         gsi_heap *heap, gs_error *error)
{
    return read_image(out, path, channels, exact, false, heap, error);
}

/* ---- sizes ---- */

/* Along an axis: output pixel i is made of `from` between a and b, in pixels, centres at 0.5. Its
 * centre lies in the image: half an output pixel or more from each edge, which is far more than
 * rounding makes. */
typedef struct span {
    double start, scale, support;
} span;

/* The triangle of bilinear interpolation, as wide as an output pixel where that is the larger. */
static double weight_of(const span *s, size_t i, size_t k)
{
    const double centre = s->start + ((double)i + 0.5) * s->scale;
    const double distance = fabs((double)k + 0.5 - centre) / s->support;
    return distance < 1 ? 1 - distance : 0;
}

static void range_of(const span *s, size_t i, size_t n, size_t *first, size_t *last)
{
    const double centre = s->start + ((double)i + 0.5) * s->scale;
    const double a = floor(centre - s->support), b = ceil(centre + s->support);
    *first = a > 0 ? (size_t)a : 0;
    *last = b < (double)n ? (size_t)b : n;
}

static void sample(float *to, const gsi_image8 *f, const span *sy, const span *sx, size_t y,
                   size_t x)
{
    size_t y0, y1, x0, x1;
    double sums[3] = {0}, all = 0;
    range_of(sy, y, f->height, &y0, &y1);
    range_of(sx, x, f->width, &x0, &x1);
    for (size_t v = y0; v < y1; v++) {
        const double wy = weight_of(sy, y, v);
        for (size_t u = x0; wy > 0 && u < x1; u++) {
            const double w = wy * weight_of(sx, x, u);
            const uint8_t *p = f->data + (v * f->width + u) * f->channels;
            for (size_t c = 0; c < f->channels; c++)
                sums[c] += w * p[c];
            all += w;
        }
    }
    for (size_t c = 0; c < f->channels; c++)
        to[c] = (float)(sums[c] / all); /* the pixel of the centre has a weight */
}

void gsi_image_fit(float *to, size_t height, size_t width, const gsi_image8 *f, bool nearest)
{
    const double fy = (double)f->height / (double)height, fx = (double)f->width / (double)width;
    const double scale = fy < fx ? fy : fx; /* one for both axes: it covers, and is cut */
    const double support = scale > 1 ? scale : 1;
    const span sy = {((double)f->height - scale * (double)height) / 2, scale, support};
    const span sx = {((double)f->width - scale * (double)width) / 2, scale, support};
    if (f->height == height && f->width == width) {
        for (size_t i = 0; i < height * width * f->channels; i++)
            to[i] = f->data[i];
        return;
    }
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++, to += f->channels) {
            if (!nearest) {
                sample(to, f, &sy, &sx, y, x);
                continue;
            }
            const size_t v = (size_t)(sy.start + ((double)y + 0.5) * scale);
            const size_t u = (size_t)(sx.start + ((double)x + 0.5) * scale);
            for (size_t c = 0; c < f->channels; c++)
                to[c] = f->data[(v * f->width + u) * f->channels + c];
        }
}
