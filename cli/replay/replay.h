/* replay.h: the parts of gradscale replay. */
#ifndef REPLAY_H
#define REPLAY_H

#include "cli/core/cli.h"

/* --simulate: what the policies do in made-up runs. */
typedef struct simulation {
    uint64_t steps; /* of each run with bad batches */
    uint64_t seeds; /* runs of the random walk */
    uint64_t walk;  /* steps of each */
    uint64_t seed;
    const char *set; /* of headroom in the random walk, "key=value ..." */
} simulation;

void simulate(const simulation *s, bool json);

#endif
