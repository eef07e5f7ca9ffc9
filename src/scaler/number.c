/* Numbers as text, the same in every locale: a state saved under one is read under another. */
#include "scaler/scaler.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* strtod with a decimal point that is one, and nothing that strtod takes besides (blanks,
 * "nan(..)", "infinity"). */
bool gsi_read_double(double *out, const char *text)
{
    const char *point = localeconv()->decimal_point;
    const size_t length = strlen(text), width = strlen(point);
    const bool minus = text[0] == '-';
    const char *digits = text + (minus || text[0] == '+');
    char copy[GSI_WORD + 16];

    if (strcmp(digits, "inf") == 0 || strcmp(digits, "nan") == 0) {
        *out = digits[0] == 'i' ? (double)INFINITY : (double)NAN;
        *out = minus ? -*out : *out;
        return true;
    }
    if (length >= GSI_WORD || length == 0)
        return false;
    if (width > 16) /* uncovered: no locale has such a decimal point */
        return false;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        if (hex_digit(c) < 0 && !strchr("xXpP+-.", c))
            return false;
        if (c == '.') {
            if (memchr(text, '.', i)) /* more than one could outgrow the copy */
                return false;
            memcpy(copy + n, point, width);
            n += width;
        } else {
            copy[n++] = c;
        }
    }
    copy[n] = 0;
    char *end;
    *out = strtod(copy, &end);
    return end == copy + n && isfinite(*out);
}

bool gsi_read_count(int64_t *out, const char *text)
{
    double x;
    if (!gsi_read_double(&x, text) || !(x >= 0 && x <= 0x1p+53) || x != trunc(x))
        return false;
    *out = (int64_t)x;
    return true;
}

char *gsi_write_double(char text[GSI_WORD], double x)
{
    static const char digits[] = "0123456789abcdef";
    char *p = text;
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    const uint64_t fraction = u & 0xFFFFFFFFFFFFF;
    const int biased = (int)(u >> 52 & 0x7FF);

    if (biased == 0x7FF && fraction) /* a NaN's sign says nothing */
        return strcpy(text, "nan");
    if (u >> 63)
        *p++ = '-';
    if (biased == 0x7FF) {
        strcpy(p, "inf");
        return text;
    }
    *p++ = '0';
    *p++ = 'x';
    *p++ = biased ? '1' : '0';
    if (fraction)
        *p++ = '.';
    for (uint64_t rest = fraction << 12; rest; rest <<= 4)
        *p++ = digits[rest >> 60];

    int e = biased ? biased - 1023 : fraction ? -1022 : 0;
    *p++ = 'p';
    *p++ = e < 0 ? '-' : '+';
    e = e < 0 ? -e : e;
    for (int unit = e >= 1000 ? 1000 : e >= 100 ? 100 : e >= 10 ? 10 : 1; unit; unit /= 10)
        *p++ = digits[e / unit % 10];
    *p = 0;
    return text;
}
