# Writes a log of a run (doc/log.md): awk -v name=fp32 -v precision=fp32 [...] -f log.awk /dev/null
# steps, seed, loss (to which it falls), underflow (share), scaler, scale (log2), skip and again (every so
# many steps), rate, bytes (of weights), flat=1 (a loss that hardly moves), spike (step with 50 times the
# loss), end=0 (it still runs), bare=1 (steps only), blind=1 (steps without a loss)
function default_to(value, other) { return value == "" ? other : value }
BEGIN {
    steps = default_to(steps, 40); seed = default_to(seed, 1); loss = default_to(loss, 0.1)
    underflow = default_to(underflow, 0); scaler = default_to(scaler, "none"); scale = default_to(scale, 0)
    rate = default_to(rate, 1000); bytes = default_to(bytes, precision == "fp32" || precision == "" ? 4000 : 2000); end = default_to(end, 1)
    precision = default_to(precision, "fp32")
    if (!bare)
        printf "{\"event\":\"run\",\"version\":\"0.1.0\",\"time\":\"2026-01-02T03:04:05Z\",\"name\":\"%s\",\"model\":\"mlp 4-8-2\",\"data\":\"shapes\",\"parameters\":58,\"config\":{\"precision\":\"%s\",\"scaler\":\"%s\",\"steps\":\"%d\",\"seed\":\"%d\"},\"machine\":{\"cpu\":\"test\",\"threads\":2},\"memory\":{\"weights\":%d,\"activations\":8000}}\n", name, precision, scaler, steps, seed, bytes
    for (s = 1; s <= steps; s++) {
        skipped = skip && s % skip == 0
        reruns = again && s % again == 0
        value = flat ? loss * (1 + 1e-5 * s / steps) : loss * (1 + 9 * exp(-10 * s / steps))
        if (s == spike) value *= 50
        printf "{\"step\":%d%s,\"scale\":%.17g,\"found_inf\":%s,\"amax\":0.5,\"verdict\":\"%s\",\"reason\":\"none\",\"reruns\":%d,\"grad_norm\":1,\"lr\":0.1,\"underflow\":%s,\"items_per_s\":%g,\"seconds\":0.01,\"items\":8}\n", s, blind ? "" : sprintf(",\"loss\":%.9g", value), 2 ^ scale, skipped || reruns ? "true" : "false", skipped ? "skip" : "apply", reruns, bare ? "null" : underflow, rate
        if (!bare && s % 10 == 0) {
            printf "{\"event\":\"layers\",\"step\":%d,\"layers\":[{\"name\":\"fc1.weight\",\"elements\":32,\"flushed\":%.6g,\"subnormal\":0.1,\"inf\":0,\"amax\":1},{\"name\":\"fc2.weight\",\"elements\":16,\"flushed\":%.6g,\"subnormal\":0.1,\"inf\":0,\"amax\":1}]}\n", s, underflow, underflow / 2
            printf "{\"event\":\"exponents\",\"step\":%d,\"half\":\"f16\",\"scale\":1,\"layers\":[{\"name\":\"fc1.weight\",\"first\":-30,\"counts\":[1,2,3,4,5,6,7,6,5,4,3,2,1],\"zero\":3,\"bad\":0}]}\n", s
            printf "{\"event\":\"valid\",\"step\":%d,\"loss\":%.6g,\"accuracy\":0.9,\"best\":true}\n", s, loss * (1 + 9 * exp(-10 * s / steps))
        }
    }
    if (!bare && end)
        printf "{\"event\":\"end\",\"step\":%d,\"seconds\":1.5,\"loss\":%.6g,\"accuracy\":0.9,\"applied\":%d,\"skipped\":0,\"retried\":0,\"status\":\"done\",\"phases\":{\"forward\":0.5,\"backward\":1}}\n", steps, loss, steps
}
