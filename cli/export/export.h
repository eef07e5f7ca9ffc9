/* export.h: the formats that `gradscale export` writes. */
#ifndef EXPORT_H
#define EXPORT_H

#include "cli/use/use.h"

/* Each: CLI_GO, or the exit code after an error. */
int export_onnx(const char *path, const use_model *u);

#endif
