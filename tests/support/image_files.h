/* image_files.h: PNG and JPEG files that tests write, into the folder of data_files.h. */
#ifndef IMAGE_FILES_H
#define IMAGE_FILES_H

#include "data_files.h"

#include <stdio.h> /* for jpeglib.h */

#include <jpeglib.h>
#include <png.h>

/* Rows of `bits` per channel, as PNG has them. */
static inline void write_png_bits(const char *name, unsigned w, unsigned h, int bits, int color,
                                  const uint8_t *pixels)
{
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    FILE *f = fopen(in_folder(name), "wb");
    png_color palette[256] = {{0, 0, 0}, {200, 0, 0}, {0, 200, 0}};
    if (!f)
        abort();
    png_init_io(png, f);
    png_set_IHDR(png, info, w, h, bits, color, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (color == PNG_COLOR_TYPE_PALETTE)
        png_set_PLTE(png, info, palette, 256);
    png_write_info(png, info);
    for (unsigned y = 0; y < h; y++)
        png_write_row(png, pixels + y * png_get_rowbytes(png, info));
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    fclose(f);
}

static inline void write_png(const char *name, unsigned w, unsigned h, int color,
                             const uint8_t *pixels)
{
    write_png_bits(name, w, h, 8, color, pixels);
}

/* channels: 1, 3, or 4 for CMYK; kind: what the file holds, JCS_UNKNOWN: what is usual. */
static inline void write_jpeg_as(const char *name, unsigned w, unsigned h, int channels,
                                 J_COLOR_SPACE kind, uint8_t *pixels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *f = fopen(in_folder(name), "wb");
    if (!f)
        abort();
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, f);
    jpeg.image_width = w;
    jpeg.image_height = h;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    if (kind != JCS_UNKNOWN)
        jpeg_set_colorspace(&jpeg, kind);
    jpeg_set_quality(&jpeg, 95, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < h) {
        JSAMPROW row = pixels + jpeg.next_scanline * w * (unsigned)channels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(f);
}

static inline void write_jpeg(const char *name, unsigned w, unsigned h, int channels,
                              uint8_t *pixels)
{
    write_jpeg_as(name, w, h, channels, JCS_UNKNOWN, pixels);
}

#endif
