// gradscale.hpp compiled with -fno-exceptions: each call that can fail takes a gs_error.
#include "gradscale/gradscale.hpp"

int main()
{
    gs_error error = {};
    gs::context ctx(gs::config(1), &error);
    if (!ctx)
        return std::puts(error.text), 1;
    gs::scaler none("pytoch", &error), scaler("pytorch", "interval=1", &error);
    if (none || !scaler || error.status != GS_OK)
        return 2;
    std::vector<float> grad(10, 65536);
    gs::step step(scaler);
    if (!step.unscale(ctx, {gs::tensor(grad)}, &error) || grad[9] != 1)
        return 3;
    if (step.end(scaler).action != GS_APPLY || scaler.scale() != 131072)
        return 4;
    grad[3] = 1;
    ctx.scale({gs::tensor(grad, "grad"), gs::tensor(grad, "again")}, 2, &error);
    return error.status == GS_OK || !error.text[0] ? 5 : 0;
}
