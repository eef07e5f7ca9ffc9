/* Convolution without a bias, then batchnorm: the layer of which the CNNs consist. */
#include "train/train.h"

gs_value *gsi_conv_norm(gsi_walk *at, gs_value *x, size_t kernel, size_t stride)
{
    gs_tape *t = at->t;
    const gs_weight *w = at->w; /* filters, gamma, beta */
    const size_t channels = w[1].cols;
    const gs_running running = {at->state, at->state + channels, 0.1f};
    at->w += 3;
    at->state += 2 * channels;
    gs_tape_set_layer(t, w[0].name);
    x = gs_conv2d(t, x, gs_param(t, &w[0]), NULL, kernel, stride, kernel / 2);
    return gs_batchnorm(t, x, gs_param(t, &w[1]), gs_param(t, &w[2]), running);
}

gsi_hwc gsi_model_add_conv_norm(void *model, gsi_hwc x, gsi_conv c, const char *conv,
                                const char *norm)
{
    gs_model *m = model;
    const size_t k = c.kernel * c.kernel * x.c;
    const gsi_hwc y = {(x.h - 1) / c.stride + 1, (x.w - 1) / c.stride + 1, c.out};
    const double pixels = (double)y.h * (double)y.w;
    const double products = m->n ? 6 : 4; /* y, dw; dx but of the first */
    gsi_model_add(m, c.out, k, (gs_init){0, c.std}, "%s.weight", conv);
    gsi_model_layout(m, (gs_layout){.kh = c.kernel, .kw = c.kernel, .rank = 4});
    gsi_model_add(m, 1, c.out, (gs_init){1, 0}, "%s.weight", norm);
    gsi_model_add(m, 1, c.out, (gs_init){0, 0}, "%s.bias", norm);
    gsi_model_add_state(m, c.out, "%s.running_mean", norm);
    float *var = gsi_model_add_state(m, c.out, "%s.running_var", norm);
    for (size_t i = 0; i < c.out; i++)
        var[i] = 1;
    m->flops += products * pixels * (double)k * (double)c.out;
    return y;
}
