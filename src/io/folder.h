/* The files below a folder, and names made of others. */
#ifndef GSI_IO_FOLDER_H
#define GSI_IO_FOLDER_H

#include "base/base.h"

enum { GSI_PATH = 4096 }; /* bytes of a path */

/* The path with `to` for the last `from` in the name of the file; false: there is none. out may be
 * path. */
bool gsi_path_replace(char out[GSI_PATH], const char *path, const char *from, const char *to);

/* What the system cannot examine may be there: opening it tells. */
bool gsi_may_be_there(const char *path);
bool gsi_is_nothing(int why); /* whether the errno says that nothing is there */

enum { GSI_FOLDER_DEPTH = 32, GSI_FOLDER_FILES = 1 << 22, GSI_FOLDER_FOLDERS = 1 << 20 };

typedef struct gsi_paths {
    gsi_heap *heap;
    bool all;       /* files that are empty and links to nothing too: who opens them is told */
    size_t folders; /* that were read */
    char **list;    /* [n] */
    size_t n, room;
} gsi_paths;

/* Adds the regular files below `folder`, sorted by their bytes, unless they are empty. Names that
 * begin with a dot are passed over, and links to folders, so that no file comes twice; with `all`
 * links are followed, but to folders above. More than the limits above are refused. */
gs_status gsi_paths_walk(gsi_paths *paths, const char *folder, gs_error *error);
void gsi_paths_free(gsi_paths *paths);

#endif
