#include "num/convert.h"

static const gs_format formats[] = {
#define X(id, name, bytes, ebits, mbits, top, max, normal, subnormal, epsilon) \
    [GS_##id] = {name, bytes, ebits, mbits, top, max, normal, subnormal, epsilon},
    GS_FORMATS(X)
#undef X
};

const gs_format *gs_dtype_format(gs_dtype dtype)
{
    return (unsigned)dtype < GS_DTYPE_COUNT ? &formats[dtype] : NULL;
}

gs_status gs_dtype_parse(gs_dtype *out, const char *name, gs_error *error)
{
    for (unsigned i = 0; name && i < GS_DTYPE_COUNT; i++)
        if (strcmp(name, formats[i].name) == 0) {
            *out = (gs_dtype)i;
            return GS_OK;
        }
    return gsi_fail(error, GS_ENAME, "there is no data type %.60s", name ? name : "without a name");
}

uint16_t gs_f32_to_f16(float x)
{
    return (uint16_t)gsi_narrow(gsi_bits(x), GSI_ROW_F16, GSI_NEAREST, false);
}

uint16_t gs_f32_to_bf16(float x)
{
    return (uint16_t)gsi_narrow(gsi_bits(x), GSI_ROW_BF16, GSI_NEAREST, false);
}

uint16_t gs_f32_to_f16_stochastic(float x, uint16_t random)
{
    return (uint16_t)gsi_narrow(gsi_bits(x), GSI_ROW_F16, random, false);
}

uint16_t gs_f32_to_bf16_stochastic(float x, uint16_t random)
{
    return (uint16_t)gsi_narrow(gsi_bits(x), GSI_ROW_BF16, random, false);
}

uint8_t gs_f32_to_f8e4m3(float x, int saturate)
{
    return (uint8_t)gsi_narrow(gsi_bits(x), GSI_ROW_F8E4M3, GSI_NEAREST, saturate);
}

uint8_t gs_f32_to_f8e5m2(float x, int saturate)
{
    return (uint8_t)gsi_narrow(gsi_bits(x), GSI_ROW_F8E5M2, GSI_NEAREST, saturate);
}

float gs_f16_to_f32(uint16_t code) { return gsi_float(gsi_widen(code, GSI_ROW_F16)); }

float gs_bf16_to_f32(uint16_t code) { return gsi_float(gsi_widen(code, GSI_ROW_BF16)); }

float gs_f8e4m3_to_f32(uint8_t code) { return gsi_float(gsi_widen(code, GSI_ROW_F8E4M3)); }

float gs_f8e5m2_to_f32(uint8_t code) { return gsi_float(gsi_widen(code, GSI_ROW_F8E5M2)); }
